#include "skrull/cuda/profile/device_data.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "skrull/cuda/cpu/host_types.h"

namespace skrull::profile {

exec::Result<exec::Buffer> RandomBuffer(exec::Device* device, exec::DType dtype,
                                        int64_t elements) {
  constexpr int64_t kPeriod = int64_t{1} << 16;
  const int64_t size = exec::SizeOf(dtype);
  exec::Result<exec::Buffer> buffer = device->Allocate(elements * size);
  SKRULL_EXEC_RETURN_IF_ERROR(buffer.status());
  std::vector<char> block(
      static_cast<size_t>(std::min(elements, kPeriod) * size));
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  exec::WithHostType(dtype, [&]<class T>(T) {
    for (size_t at = 0; at < block.size(); at += sizeof(T)) {
      const T value = exec::ConvertHost<T>(uniform(random));
      std::memcpy(block.data() + at, &value, sizeof(T));
    }
  });
  const auto period = static_cast<int64_t>(block.size());
  for (int64_t at = 0; at < elements * size; at += period) {
    SKRULL_EXEC_RETURN_IF_ERROR(
        device->Upload(static_cast<char*>(buffer->data()) + at, block.data(),
                       std::min(period, elements * size - at)));
  }
  return buffer;
}

}  // namespace skrull::profile
