// Launches on GPUs; portable.cuh says when.
#ifndef SKRULL_CUDA_KERNELS_LAUNCH_GPU_CUH_
#define SKRULL_CUDA_KERNELS_LAUNCH_GPU_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::internal {

// What a block may use of dynamic shared memory without asking.
inline constexpr int64_t kSharedBytesByDefault = int64_t{48} << 10;

template <class... Parameters, class... Arguments>
Status LaunchKernel(const char* name, void (*kernel)(Parameters...), dim3 grid,
                    dim3 block, int64_t shared_bytes, Stream stream,
                    Arguments&&... arguments) {
  cudaError_t error = cudaSuccess;
  if (shared_bytes > kSharedBytesByDefault) {
    error = cudaFuncSetAttribute(kernel,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared_bytes));
  }
  if (error == cudaSuccess) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.stream = static_cast<cudaStream_t>(stream.handle);
    error = cudaLaunchKernelEx(&config, kernel,
                               std::forward<Arguments>(arguments)...);
  }
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // it is told here, not to the next who asks
  return {StatusCode::kDeviceError,
          "launch of " + std::string(name) + ": " + cudaGetErrorString(error)};
}

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_KERNELS_LAUNCH_GPU_CUH_
