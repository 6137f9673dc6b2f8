#include "skrull/cuda/sim/shared_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "skrull/cuda/cpu/host_device.h"
#include "skrull/cuda/sim/sanitizers.h"

namespace skrull::exec::sim {
namespace {

// As far as a whole tile of 64 rows of 64 floats may be missed.
constexpr size_t kGuardBytes = size_t{64} * 64 * sizeof(float);
constexpr unsigned char kGuardByte = 0xA5;

Buffer AllocateOrThrow(int64_t bytes) {
  Result<Buffer> buffer = AllocateHostMemory(bytes);
  if (!buffer.ok()) throw std::bad_alloc();
  return std::move(*buffer);
}

}  // namespace

SharedMemory::SharedMemory(int64_t bytes)
    : memory_(AllocateOrThrow(bytes + int64_t{kGuardBytes})), bytes_(bytes) {
  unsigned char* guard = static_cast<unsigned char*>(data()) + bytes;
  std::memset(guard, kGuardByte, kGuardBytes);
  ForbidBytes(guard, kGuardBytes);
}

SharedMemory::~SharedMemory() {
  AllowBytes(static_cast<unsigned char*>(data()) + bytes_, kGuardBytes);
}

void SharedMemory::Poison() {
  std::memset(data(), 0xFF, static_cast<size_t>(bytes_));
}

bool SharedMemory::GuardIsIntact() const {
  unsigned char* guard = static_cast<unsigned char*>(data()) + bytes_;
  AllowBytes(guard, kGuardBytes);
  const bool intact =
      std::all_of(guard, guard + kGuardBytes,
                  [](unsigned char byte) { return byte == kGuardByte; });
  ForbidBytes(guard, kGuardBytes);
  return intact;
}

}  // namespace skrull::exec::sim
