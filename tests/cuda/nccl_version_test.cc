// Prints the CUDA runtime and NCCL that this build links. Needs no GPU.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdio>

int main() {
  int cuda = 0;
  if (const cudaError_t error = cudaRuntimeGetVersion(&cuda);
      error != cudaSuccess) {
    std::fprintf(stderr, "CUDA runtime: %s\n", cudaGetErrorString(error));
    return 1;
  }
  int nccl = 0;
  if (const ncclResult_t result = ncclGetVersion(&nccl);
      result != ncclSuccess) {
    std::fprintf(stderr, "NCCL: %s\n", ncclGetErrorString(result));
    return 1;
  }
  std::printf("CUDA runtime %d, NCCL %d, built with %d and %d\n", cuda, nccl,
              CUDART_VERSION, NCCL_VERSION_CODE);
  // The library must be the one whose header the code was compiled with.
  return nccl == NCCL_VERSION_CODE ? 0 : 1;
}
