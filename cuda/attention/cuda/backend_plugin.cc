// libskrull_backend_cuda.so.
#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "skrull/cuda/attention/cuda/cuda_attention.h"
#include "skrull/cuda/backend_registry.h"

namespace skrull::exec {
namespace {

// Errors: DEVICE_ERROR without a GPU that can be used; UNSUPPORTED naming one
// that has no mma.sync m16n8k16 of bfloat16 or no cp.async.
BackendResult CreateCudaAttention() {
  int device = 0;
  int major = 0;
  int minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                   device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor,
                                   device);
  }
  if (error != cudaSuccess) {
    return Status(StatusCode::kDeviceError,
                  std::string("the cuda backend finds no GPU: ") +
                      cudaGetErrorString(error));
  }
  if (major < 8) {
    return Status(StatusCode::kUnsupported,
                  "the cuda backend needs compute capability 8.0, and device " +
                      std::to_string(device) + " has " + std::to_string(major) +
                      "." + std::to_string(minor));
  }
  return std::unique_ptr<AttentionBackend>(
      std::make_unique<CudaAttention>(MemoryKind::kCuda));
}

}  // namespace
}  // namespace skrull::exec

SKRULL_EXEC_DEFINE_BACKEND(skrull::exec::CreateCudaAttention);
