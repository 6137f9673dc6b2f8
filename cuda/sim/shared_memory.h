// The dynamic shared memory of a block.
#ifndef SKRULL_CUDA_SIM_SHARED_MEMORY_H_
#define SKRULL_CUDA_SIM_SHARED_MEMORY_H_

#include <cstdint>

#include "skrull/cuda/device.h"

namespace skrull::exec::sim {

// Aligned to 256 bytes, guarded behind its end: AddressSanitizer reports each
// access there, and else CheckGuard finds writes.
class SharedMemory {
 public:
  // Throws std::bad_alloc.
  explicit SharedMemory(int64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void* data() const { return memory_.data(); }

  // Makes every byte 0xFF, so that each value of every type is a NaN.
  void Poison();
  // False if the guard was written since Poison.
  bool GuardIsIntact() const;

 private:
  Buffer memory_;
  const int64_t bytes_;
};

}  // namespace skrull::exec::sim

#endif  // SKRULL_CUDA_SIM_SHARED_MEMORY_H_
