// Calls of the CUDA runtime.
#ifndef SKRULL_CUDA_GPU_CUDA_CALL_H_
#define SKRULL_CUDA_GPU_CUDA_CALL_H_

#include <cuda.h>
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

// Sets *ordinal to the calling thread's current device. Errors: DEVICE_ERROR.
inline Status CurrentOrdinal(int32_t* ordinal) {
  const cudaError_t error = cudaGetDevice(ordinal);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // as above
  return {StatusCode::kDeviceError,
          std::string("cudaGetDevice: ") + cudaGetErrorString(error)};
}

// Has this process a context on the GPU? True if the driver cannot say.
inline bool HasContext(int ordinal) {
  // Not linked: a program that is does not start without a driver.
  static const auto get_state = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuDevicePrimaryCtxGetState", &function, 7000, cudaEnableDefault,
        &found);
    if (error != cudaSuccess) (void)cudaGetLastError();
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess
               ? reinterpret_cast<decltype(&cuDevicePrimaryCtxGetState)>(
                     function)
               : nullptr;
  }();
  unsigned flags = 0;
  int active = 0;
  return get_state == nullptr ||
         get_state(ordinal, &flags, &active) != CUDA_SUCCESS || active != 0;
}

// Makes a GPU the calling thread's current device, and the one before again
// when it ends. Not if that one has no context: a thread that never chose a
// device has number 0, and cudaSetDevice would make a context there, which
// takes hundreds of MB of a GPU that is another rank's.
class CurrentGpu {
 public:
  explicit CurrentGpu(int32_t ordinal) {
    error_ = cudaGetDevice(&before_);
    if (error_ != cudaSuccess || before_ == ordinal) return;
    error_ = cudaSetDevice(ordinal);
    // Asked only now, so that the question itself can make a context on no
    // other GPU than this.
    returns_ = error_ == cudaSuccess && HasContext(before_);
  }
  ~CurrentGpu() {
    if (returns_) (void)cudaSetDevice(before_);
  }
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  bool returns_ = false;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_GPU_CUDA_CALL_H_
