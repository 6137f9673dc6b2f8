// What both backward kernels need of each row of queries, once for all tiles:
// delta = sum over the row of dO * O, and the LSE in powers of 2, both without
// gaps.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_ROW_STATISTICS_KERNEL_CUH_
#define SKRULL_CUDA_ATTENTION_CUDA_ROW_STATISTICS_KERNEL_CUH_

#include <cmath>
#include <cstdint>

#include "skrull/cuda/attention/cuda/block_tile.cuh"
#include "skrull/cuda/attention/cuda/kernel_params.h"
#include "skrull/cuda/attention/cuda/shared_tile.cuh"
#include "skrull/cuda/kernels/mma.cuh"
#include "skrull/cuda/kernels/portable.cuh"

namespace skrull::exec::flash {

// Rows, each of one query and head, that a block works on: a thread for each 16
// bytes of a row.
template <int kDim>
inline constexpr int kStatisticsRows = kThreads * kPieceElements / kDim;

template <class T>
__device__ __forceinline__ float DotOfPieces(const uint4& a, const uint4& b) {
  const uint32_t x[4] = {a.x, a.y, a.z, a.w};
  const uint32_t y[4] = {b.x, b.y, b.z, b.w};
  float sum = 0;
  SKRULL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float2 u = kernels::UnpackPair<T>(x[i]);
    const float2 w = kernels::UnpackPair<T>(y[i]);
    sum += u.x * w.x;
    sum += u.y * w.y;
  }
  return sum;
}

// Grid: blocks for total_q * q_heads rows of kStatisticsRows; no shared memory.
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads)
    RowStatisticsKernel(const __grid_constant__ RowStatisticsParams params) {
  constexpr int kLanes = kDim / kPieceElements;  // of a row
  const int64_t item = int64_t{blockIdx.x} * kStatisticsRows<kDim> +
                       static_cast<int>(threadIdx.x) / kLanes;
  const int64_t row = item / params.q_heads;
  const auto head = static_cast<int32_t>(item % params.q_heads);
  const int piece = static_cast<int>(threadIdx.x) % kLanes;
  // Threads behind the last row stay for the shuffles.
  const bool valid = row < params.statistics.total_q;
  float delta = 0;
  if (valid) {
    const int offset = piece * kPieceElements;
    delta = DotOfPieces<T>(
        *reinterpret_cast<const uint4*>(At(params.d_o, row, head) + offset),
        *reinterpret_cast<const uint4*>(At(params.o, row, head) + offset));
  }
  SKRULL_UNROLL
  for (int mask = 1; mask < kLanes; mask *= 2) {
    delta += __shfl_xor_sync(~0U, delta, mask);
  }
  if (!valid || piece != 0) return;
  constexpr float kLog2OfE = 1.44269504F;
  const float lse = *At(params.lse, row, head);
  const int64_t at = head * params.statistics.total_q + row;
  params.statistics.log2_sum[at] = lse == -INFINITY ? INFINITY : lse * kLog2OfE;
  params.statistics.delta[at] = delta;
}

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_ROW_STATISTICS_KERNEL_CUH_
