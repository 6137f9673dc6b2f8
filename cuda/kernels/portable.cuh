// Included first by every kernel and launcher: one source, compiled by nvcc for
// GPUs, and as plain C++ for the CPU, where cuda/sim runs it thread by thread.
// That second build needs neither CUDA's headers nor nvcc.
//
// What CUDA has and cuda/sim/cuda_builtins.h lacks, the second build refuses:
// inline PTX, and with it tensor cores and asynchronous copies, stay behind
// primitives that have a portable body.
#ifndef SKRULL_CUDA_KERNELS_PORTABLE_CUH_
#define SKRULL_CUDA_KERNELS_PORTABLE_CUH_

#include <cstdint>

#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"

#ifdef __CUDACC__
#include "skrull/cuda/kernels/launch_gpu.cuh"
#else
#include "skrull/cuda/kernels/launch_host.h"
#endif

// In a kernel: `type* name` is the block's dynamic shared memory, aligned to 16
// bytes. Once a kernel.
#ifdef __CUDACC__
#define SKRULL_DYNAMIC_SHARED(type, name)                  \
  extern __shared__ __align__(16) unsigned char name##_[]; \
  type* const name = reinterpret_cast<type*>(name##_)
#else
#define SKRULL_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::skrull::exec::sim::DynamicShared())
#endif

// Before a loop that is to be unrolled.
#ifdef __CUDACC__
#define SKRULL_UNROLL _Pragma("unroll")
#else
#define SKRULL_UNROLL
#endif

// SKRULL_LAUNCH((Kernel<64>), grid, block, shared_bytes, stream, arguments...)
// launches on the stream and is a Status. `shared_bytes` is of dynamic shared
// memory, up to what the device allows a block. Under cuda/sim the kernel runs
// on the stream's HostQueue, or at once where the stream's handle is null.
//
// Errors: DEVICE_ERROR naming the kernel if the launch is refused.
#define SKRULL_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)  \
  ::skrull::exec::internal::LaunchKernel(#kernel, kernel, grid, block, \
                                         shared_bytes,                 \
                                         stream __VA_OPT__(, ) __VA_ARGS__)

#endif  // SKRULL_CUDA_KERNELS_PORTABLE_CUH_
