// dK and dV: FlashAttention-2 (Dao, 2023), Algorithm 2, without its dQ
// (query_gradient_kernel.cuh). A block holds the sums of one tile of keys of
// one key head in registers and walks the queries that see it, for one query
// head of the group after the other; the next tile of queries is copied while
// this one is multiplied.
//
// Tiles are [keys, queries]: a warp has rows of keys of its own, so that P and
// dS stay in its registers and each sum has one order. No atomic additions, and
// no dK and dV for each query head.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_KEY_GRADIENT_KERNEL_CUH_
#define SKRULL_CUDA_ATTENTION_CUDA_KEY_GRADIENT_KERNEL_CUH_

#include <cmath>
#include <cstdint>

#include "skrull/cuda/attention/cuda/block_tile.cuh"
#include "skrull/cuda/attention/cuda/kernel_params.h"
#include "skrull/cuda/attention/cuda/shared_tile.cuh"
#include "skrull/cuda/attention/cuda/tile_schedule.cuh"
#include "skrull/cuda/attention/cuda/warp_math.cuh"
#include "skrull/cuda/kernels/mma.cuh"
#include "skrull/cuda/kernels/portable.cuh"

namespace skrull::exec::flash {

// dK and dV of a thread are 128 registers with 64 columns as with 128, and a
// tile of 32 queries adds 64 or 32 for S and dP, below the 255 that two blocks
// of a multiprocessor can have.
template <int kDim>
struct KeyGradientShape {
  static constexpr int kM = kDim == 64 ? 2 : 1;
  static constexpr int kKeys = 16 * kM * kWarps;
  static constexpr int kQueries = 32;
  static constexpr int kKeyTile = kKeys * kDim;  // elements
  static constexpr int kTile = kQueries * kDim;
  // Q, dO, then the two statistics of each query, which are float.
  static constexpr int kStage = 2 * kTile + 4 * kQueries;
  // K, V and two stages.
  static constexpr int kSharedBytes = 2 * (2 * kKeyTile + 2 * kStage);
};

// The tiles of queries that a block walks.
struct QueryCursor {
  int32_t head;
  int32_t query;  // first of the tile, within the segment
};

// Starts the copies of a tile of queries to a stage. Statistics of rows that
// are no queries become zeros, and so do their Q and dO: then P is 1 there, and
// adds 1 * 0 to dV and 1 * (0 - 0) * 0 to dK.
template <int kDim>
__device__ __forceinline__ void CopyQueries(uint16_t* stage,
                                            const BackwardParams& params,
                                            const BlockTile& tile,
                                            const QueryCursor& at) {
  using Shape = KeyGradientShape<kDim>;
  const int32_t row = tile.q_row + at.query;
  const int32_t rows = tile.mask.queries - at.query;
  CopyTile<kDim, Shape::kQueries>(stage, At(params.q, row, at.head),
                                  params.q.row_stride, rows);
  CopyTile<kDim, Shape::kQueries>(stage + Shape::kTile,
                                  At(params.d_o, row, at.head),
                                  params.d_o.row_stride, rows);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= 2 * Shape::kQueries) return;
  const int i = thread % Shape::kQueries;
  const float* source = thread < Shape::kQueries ? params.statistics.log2_sum
                                                 : params.statistics.delta;
  kernels::CopyAsync4(
      stage + 2 * Shape::kTile + 2 * thread,
      source + at.head * params.statistics.total_q + row + (i < rows ? i : 0),
      i < rows);
}

// Of s and dp, [keys, queries]: s := P, dp := P * (dP - delta).
template <int kM, int kN>
__device__ __forceinline__ void Gradients(float (&s)[kM][kN][4],
                                          float (&dp)[kM][kN][4],
                                          const float* log2_sum,
                                          const float* delta,
                                          float scale_log2) {
  SKRULL_UNROLL
  for (int n = 0; n < kN; ++n) {
    const int column = FragmentColumn(n, 0);
    const float2 sums = *reinterpret_cast<const float2*>(log2_sum + column);
    const float2 deltas = *reinterpret_cast<const float2*>(delta + column);
    SKRULL_UNROLL
    for (int m = 0; m < kM; ++m) {
      SKRULL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float p = kernels::Exp2(s[m][n][i] * scale_log2 -
                                      (i % 2 == 0 ? sums.x : sums.y));
        s[m][n][i] = p;
        dp[m][n][i] = p * (dp[m][n][i] - (i % 2 == 0 ? deltas.x : deltas.y));
      }
    }
  }
}

__device__ __forceinline__ BlockTile FindKeyTile(const BackwardParams& params,
                                                 const TileSchedule& schedule) {
  return FindBlockTile(params.shared, schedule, blockIdx.x,
                       params.shared.q_heads / params.shared.group,
                       /*of_keys=*/true);
}

// Writes a warp's rows of the sums through the memory of K and V. Finds the
// tile once more: kept through the loop it would cost registers that the loop
// of 64 columns does not have.
template <class T, int kDim, int kM>
__device__ __forceinline__ void StoreKeyGradients(
    const BackwardParams& params, const TileSchedule& schedule,
    const float (&dk)[kM][kDim / 8][4], const float (&dv)[kM][kDim / 8][4],
    uint16_t* shared) {
  // From here on no copy is under way, and no warp reads K or V.
  kernels::WaitForCopies<0>();
  __syncthreads();
  const BlockTile tile = FindKeyTile(params, schedule);
  const int warp_row = 16 * kM * WarpOfThread();
  const int32_t first = tile.first + warp_row;
  const int32_t valid = tile.mask.keys - first;
  float factor[kM][2];
  SetRows(factor, params.shared.scale);
  StoreRows<T, kDim>(dk, factor, shared + warp_row * kDim,
                     At(params.dk, tile.kv_row + first, tile.head),
                     params.dk.row_stride, valid);
  SetRows(factor, 1);
  StoreRows<T, kDim>(dv, factor, shared + warp_row * kDim,
                     At(params.dv, tile.kv_row + first, tile.head),
                     params.dv.row_stride, valid);
}

// Grid: schedule.slots * key heads blocks of kThreads; Shape::kSharedBytes.
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, 2)
    KeyGradientKernel(const __grid_constant__ BackwardParams params,
                      const __grid_constant__ TileSchedule schedule) {
  using Shape = KeyGradientShape<kDim>;
  constexpr int kM = Shape::kM;
  SKRULL_DYNAMIC_SHARED(uint16_t, shared);
  const int32_t group = params.shared.group;
  const BlockTile tile = FindKeyTile(params, schedule);
  if (tile.empty) return;
  const int32_t row = tile.kv_row + tile.first;
  uint16_t* keys = shared;
  uint16_t* values = shared + Shape::kKeyTile;
  uint16_t* stages = shared + 2 * Shape::kKeyTile;
  CopyTile<kDim, Shape::kKeys>(keys, At(params.k, row, tile.head),
                               params.k.row_stride,
                               tile.mask.keys - tile.first);
  CopyTile<kDim, Shape::kKeys>(values, At(params.v, row, tile.head),
                               params.v.row_stride,
                               tile.mask.keys - tile.first);

  const int32_t begin =
      tile.mask.FirstQueryOf(tile.first) / Shape::kQueries * Shape::kQueries;
  const int32_t end_head = (tile.head + 1) * group;
  QueryCursor at{begin < tile.mask.queries ? tile.head * group : end_head,
                 begin};
  if (at.head < end_head) CopyQueries<kDim>(stages, params, tile, at);
  kernels::CommitCopies();

  const int warp_row = 16 * kM * WarpOfThread();
  const int32_t first = tile.first + warp_row;
  float dk[kM][kDim / 8][4];
  float dv[kM][kDim / 8][4];
  SetZero(dk);
  SetZero(dv);
  for (int stage = 0; at.head < end_head; stage ^= 1) {
    const int32_t query = at.query;
    at.query += Shape::kQueries;
    if (at.query >= tile.mask.queries) at = {at.head + 1, begin};
    // This tile is there, and all warps are done with the other stage.
    kernels::WaitForCopies<0>();
    __syncthreads();
    if (at.head < end_head) {
      CopyQueries<kDim>(stages + (stage ^ 1) * Shape::kStage, params, tile, at);
    }
    kernels::CommitCopies();
    const int32_t hidden = tile.mask.HiddenFrom(first, query);
    if (hidden >= Shape::kQueries) continue;  // none sees this warp's keys
    const uint16_t* queries = stages + stage * Shape::kStage;
    const auto* log2_sum =
        reinterpret_cast<const float*>(queries + 2 * Shape::kTile);
    float s[kM][Shape::kQueries / 8][4];
    float dp[kM][Shape::kQueries / 8][4];
    MultiplySharedRows<T, kDim>(s, keys, warp_row, queries);
    if (hidden + 16 * kM > 1) HideQueries(s, hidden);
    MultiplySharedRows<T, kDim>(dp, values, warp_row, queries + Shape::kTile);
    Gradients(s, dp, log2_sum, log2_sum + Shape::kQueries,
              params.shared.scale_log2);
    MultiplyAdd<T, kDim>(dv, s, queries + Shape::kTile);
    MultiplyAdd<T, kDim>(dk, dp, queries);
  }

  StoreKeyGradients<T, kDim>(params, schedule, dk, dv, shared);
}

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_KEY_GRADIENT_KERNEL_CUH_
