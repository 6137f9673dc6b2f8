#include "skrull/cuda/check/cuda_access.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>

namespace skrull::check {

exec::Status CopyToHost(void* dst, const void* src, int64_t bytes,
                        exec::MemoryKind memory) {
  if (memory == exec::MemoryKind::kHost) {
    std::memcpy(dst, src, static_cast<size_t>(bytes));
    return {};
  }
  const cudaError_t error =
      cudaMemcpy(dst, src, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost);
  if (error == cudaSuccess) return {};
  return {exec::StatusCode::kDeviceError,
          std::string("cudaMemcpy: ") + cudaGetErrorString(error)};
}

nlohmann::ordered_json DescribeGpu(int32_t ordinal) {
  cudaDeviceProp properties = {};
  int driver = 0;
  int runtime = 0;
  cudaError_t error = cudaGetDeviceProperties(&properties, ordinal);
  if (error == cudaSuccess) error = cudaDriverGetVersion(&driver);
  if (error == cudaSuccess) error = cudaRuntimeGetVersion(&runtime);
  if (error != cudaSuccess) {
    return {{"gpu", std::string("none: ") + cudaGetErrorString(error)}};
  }
  // Versions are 1000 * major + 10 * minor.
  const auto version = [](int number) {
    return std::to_string(number / 1000) + "." +
           std::to_string(number % 1000 / 10);
  };
  return {{"gpu", properties.name},
          {"compute_capability", std::to_string(properties.major) + "." +
                                     std::to_string(properties.minor)},
          {"multiprocessors", properties.multiProcessorCount},
          {"memory_bytes", properties.totalGlobalMem},
          {"driver", version(driver)},
          {"runtime", version(runtime)}};
}

}  // namespace skrull::check
