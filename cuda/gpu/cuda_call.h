// Calls of the CUDA runtime.
#ifndef SKRULL_CUDA_GPU_CUDA_CALL_H_
#define SKRULL_CUDA_GPU_CUDA_CALL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "skrull/cuda/status.h"

namespace skrull::exec::internal {

// OK, OUT_OF_MEMORY or DEVICE_ERROR: "cudaMemsetAsync on GPU 1: <CUDA's text>".
inline Status CudaStatus(cudaError_t error, const char* call, int32_t ordinal) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // it is told here, not to the next who asks
  const StatusCode code = error == cudaErrorMemoryAllocation
                              ? StatusCode::kOutOfMemory
                              : StatusCode::kDeviceError;
  return {code, std::string(call) + " on GPU " + std::to_string(ordinal) +
                    ": " + cudaGetErrorString(error)};
}

// Makes a GPU the calling thread's current device, and the one before again
// when it ends.
class CurrentGpu {
 public:
  explicit CurrentGpu(int32_t ordinal) {
    error_ = cudaGetDevice(&before_);
    if (error_ != cudaSuccess || before_ == ordinal) return;
    error_ = cudaSetDevice(ordinal);
    changed_ = error_ == cudaSuccess;
  }
  ~CurrentGpu() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_GPU_CUDA_CALL_H_
