// libskrull_backend_cuda.so.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <string>

#include "skrull/cuda/attention/cuda/cuda_attention.h"
#include "skrull/cuda/backend_registry.h"

namespace skrull::exec {
namespace {

// What mma.sync m16n8k16 of bfloat16 and cp.async need.
constexpr int kLeastMajor = 8;

// Errors: DEVICE_ERROR without a GPU that can be used; UNSUPPORTED if none is
// new enough. Which one calls run on is the executor's device, and a CudaDevice
// is made of no older one.
BackendResult CreateCudaAttention() {
  int count = 0;
  int best = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  for (int device = 0; error == cudaSuccess && device < count; ++device) {
    int major = 0;
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                   device);
    best = std::max(best, major);
  }
  if (error != cudaSuccess) {
    (void)cudaGetLastError();  // it is told here, not to the next who asks
    return Status(StatusCode::kDeviceError,
                  std::string("the cuda backend finds no GPU: ") +
                      cudaGetErrorString(error));
  }
  if (best < kLeastMajor) {
    return Status(StatusCode::kUnsupported,
                  "the cuda backend needs compute capability " +
                      std::to_string(kLeastMajor) +
                      ".0, and no GPU of this machine has more than " +
                      std::to_string(best) + ".x");
  }
  return std::unique_ptr<AttentionBackend>(
      std::make_unique<CudaAttention>(MemoryKind::kCuda));
}

}  // namespace
}  // namespace skrull::exec

SKRULL_EXEC_DEFINE_BACKEND(skrull::exec::CreateCudaAttention);
