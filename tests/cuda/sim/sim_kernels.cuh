// Kernels that try what the simulator promises, right and wrong ones.
#ifndef SKRULL_TESTS_CUDA_SIM_SIM_KERNELS_CUH_
#define SKRULL_TESTS_CUDA_SIM_SIM_KERNELS_CUH_

#include "skrull/cuda/kernels/portable.cuh"

namespace skrull::exec::testing {

// out[block] := sum of in[block * threads, ...). Threads: a power of two. Only
// `synchronised` it is right.
template <bool synchronised>
__global__ void SumBlock(const int* in, int* out) {
  SKRULL_DYNAMIC_SHARED(int, sums);
  const unsigned self = threadIdx.x;
  sums[self] = in[blockIdx.x * blockDim.x + self];
  if (synchronised) __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (self < half) sums[self] += sums[self + half];
    if (synchronised) __syncthreads();
  }
  if (self == 0) out[blockIdx.x] = sums[0];
}

// Each of 4 arrays of `threads` ints: what one operation gives each thread.
__global__ void TryWarpOperations(int* out) {
  const int self = static_cast<int>(threadIdx.x);
  const int count = static_cast<int>(blockDim.x);
  const int value = 100 * (self / 32) + self % 32;
  out[self] = __shfl_sync(~0U, value, 5);
  out[count + self] = __shfl_xor_sync(~0U, value, 3);
  out[2 * count + self] = __shfl_down_sync(~0U, value, 30U);
  out[3 * count + self] =
      static_cast<int>(__ballot_sync(~0U, self % 3 == 0 ? 1 : 0));
}

// The halves of each warp meet a different number of times, then all do.
__global__ void MeetInHalves(int* out) {
  const int self = static_cast<int>(threadIdx.x);
  const bool low = self % 32 < 16;
  int value = self;
  if (low) {
    value = __shfl_sync(0x0000FFFFU, value, 3);
    value += __shfl_xor_sync(0x0000FFFFU, self, 1);
  } else {
    value = __shfl_sync(0xFFFF0000U, value, 17);
  }
  out[self] = __shfl_xor_sync(~0U, value, 16);
}

// Threads from `stay` on return at once; CUDA's barrier then waits for the
// others alone.
__global__ void ReturnEarly(unsigned stay, int* out) {
  if (threadIdx.x >= stay) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

// Wrong: `half` of the threads never come to the barrier, for they wait for
// each other in another.
__global__ void Diverge(unsigned half) {
  if (threadIdx.x < half) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

// Wrong: two barriers for one.
__global__ void MeetElsewhere() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

// Wrong: lanes of one warp in different operations.
__global__ void MixOperations(int* out) {
  if (threadIdx.x % 2 == 0) {
    out[threadIdx.x] = __shfl_sync(~0U, 1, 0);
  } else {
    out[threadIdx.x] = static_cast<int>(__ballot_sync(~0U, 1));
  }
}

// Wrong: reads lanes that have returned.
__global__ void ReadTheGone(int* out) {
  if (threadIdx.x >= 16) return;
  out[threadIdx.x] = __shfl_xor_sync(~0U, 1, 16);
}

// Wrong: lane 0 takes part in what does not name it.
__global__ void MeetUnnamed() { __syncwarp(0xFFFFFFFEU); }

// Writes float `index` of the shared memory; wrong where there are not as many.
__global__ void WriteShared(int index) {
  SKRULL_DYNAMIC_SHARED(float, shared);
  if (threadIdx.x == 0) shared[index] = 1.0F;
}

// out[i] := whether float i of the shared memory, never written, is a NaN.
__global__ void ReadShared(int* out) {
  SKRULL_DYNAMIC_SHARED(float, shared);
  out[threadIdx.x] = shared[threadIdx.x] != shared[threadIdx.x] ? 1 : 0;
  __syncthreads();
  shared[threadIdx.x] = 0.0F;
}

// order[k] := the k-th thread to come here. One block.
__global__ void KeepOrder(int* order, int* count) {
  order[(*count)++] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

// Each element of a 3D grid of 3D blocks is visited once.
__global__ void CountVisits(int* visits) {
  const unsigned block =
      (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread =
      (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  visits[block * threads + thread] += 1;
}

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_SIM_SIM_KERNELS_CUH_
