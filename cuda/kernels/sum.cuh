// Sums of equally long arrays. A thread adds one pack of all of them, in order:
// each element is read once, and there are no atomics.
#ifndef SKRULL_CUDA_KERNELS_SUM_CUH_
#define SKRULL_CUDA_KERNELS_SUM_CUH_

#include <cstdint>

#include "skrull/cuda/device.h"
#include "skrull/cuda/kernels/scalar.cuh"

namespace skrull::exec::internal {

// By value in the launch: 64 pointers take an eighth of what it may carry.
struct SumJob {
  void* dst = nullptr;
  const void* addends[kMaxAddends] = {};
  int32_t addend_count = 0;
  int64_t count = 0;  // elements of each
};

inline constexpr unsigned kSumThreads = 256;

template <int count, class T>
__device__ __forceinline__ void SumPack(const SumJob& job, int64_t first) {
  AccumulatorType<T> sums[count] = {};
  for (int32_t k = 0; k < job.addend_count; ++k) {
    const auto loaded =
        LoadPack<count>(static_cast<const T*>(job.addends[k]) + first);
    SKRULL_UNROLL
    for (int i = 0; i < count; ++i) {
      sums[i] += Convert<AccumulatorType<T>>(loaded.at[i]);
    }
  }
  Pack<T, count> made;
  SKRULL_UNROLL
  for (int i = 0; i < count; ++i) made.at[i] = Convert<T>(sums[i]);
  StorePack(static_cast<T*>(job.dst) + first, made);
}

// Grid: a thread for each pack of `count` elements, and then for each that is
// left.
template <int count, class T>
__global__ void __launch_bounds__(kSumThreads)
    SumKernel(const __grid_constant__ SumJob job) {
  const int64_t number = int64_t{blockIdx.x} * kSumThreads + threadIdx.x;
  const int64_t packs = job.count / count;
  if (number < packs) {
    SumPack<count, T>(job, number * count);
  } else if (packs * count + (number - packs) < job.count) {
    SumPack<1, T>(job, packs * count + (number - packs));
  }
}

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_KERNELS_SUM_CUH_
