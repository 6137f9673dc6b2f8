// dQ: the part of FlashAttention-2 (Dao, 2023), Algorithm 2, that sums over
// keys. A block holds one tile of queries of one head, with their dO, in
// registers and walks the keys that it sees, as the forward pass does.
//
// Difference from the listing: dQ is computed apart from dK and dV, which costs
// two more products of tiles, S and dP, and needs neither atomic additions nor
// a float32 copy of dQ. So equal calls give equal bits.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_QUERY_GRADIENT_KERNEL_CUH_
#define SKRULL_CUDA_ATTENTION_CUDA_QUERY_GRADIENT_KERNEL_CUH_

#include <cmath>
#include <cstdint>

#include "skrull/cuda/attention/cuda/block_tile.cuh"
#include "skrull/cuda/attention/cuda/kernel_params.h"
#include "skrull/cuda/attention/cuda/key_value_rows.cuh"
#include "skrull/cuda/attention/cuda/shared_tile.cuh"
#include "skrull/cuda/attention/cuda/tile_schedule.cuh"
#include "skrull/cuda/attention/cuda/warp_math.cuh"
#include "skrull/cuda/kernels/mma.cuh"
#include "skrull/cuda/kernels/portable.cuh"

namespace skrull::exec::flash {

// Q and dO, dQ, S and dP of a thread are 192 registers with 64 columns as with
// 128, below the 255 that two blocks of a multiprocessor can have.
template <int kDim>
struct QueryGradientShape {
  static constexpr int kM = kDim == 64 ? 2 : 1;
  static constexpr int kQueries = 16 * kM * kWarps;
  static constexpr int kKeys = kDim == 64 ? 32 : 64;
  static constexpr int kTile = kKeys * kDim;  // elements
  static constexpr int kStage = 2 * kTile;    // keys, then values
  static constexpr int kQueryTile = kQueries * kDim;
  // Q and dO begin in the second stage until they are in registers.
  static constexpr int kSharedBytes =
      2 * (kStage + (kStage > 2 * kQueryTile ? kStage : 2 * kQueryTile));
};

// Of the rows (m, h) of a warp.
template <int kM>
struct RowsOfStatistics {
  float log2_sum[kM][2];
  float delta[kM][2];
};

// `first` is the warp's first query within the segment. Rows that are no
// queries get no part in anything.
template <int kM>
__device__ __forceinline__ RowsOfStatistics<kM> LoadStatistics(
    const RowStatistics& statistics, const BlockTile& tile, int32_t first) {
  RowsOfStatistics<kM> rows;
  const int64_t begin = tile.head * statistics.total_q + tile.q_row;
  SKRULL_UNROLL
  for (int m = 0; m < kM; ++m) {
    SKRULL_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int32_t query = first + FragmentRow(m, h);
      const bool valid = query < tile.mask.queries;
      rows.log2_sum[m][h] =
          valid ? statistics.log2_sum[begin + query] : INFINITY;
      rows.delta[m][h] = valid ? statistics.delta[begin + query] : 0;
    }
  }
  return rows;
}

// s := P * (dP - delta), the gradient of the scaled scores, with P from s.
template <int kM, int kN>
__device__ __forceinline__ void ScoreGradients(float (&s)[kM][kN][4],
                                               const float (&dp)[kM][kN][4],
                                               const RowsOfStatistics<kM>& rows,
                                               float scale_log2) {
  SKRULL_UNROLL
  for (int m = 0; m < kM; ++m) {
    SKRULL_UNROLL
    for (int n = 0; n < kN; ++n) {
      SKRULL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float p =
            kernels::Exp2(s[m][n][i] * scale_log2 - rows.log2_sum[m][i / 2]);
        s[m][n][i] = p * (dp[m][n][i] - rows.delta[m][i / 2]);
      }
    }
  }
}

// Starts the copies of the block's tiles of Q and dO, one behind the other.
template <int kDim>
__device__ __forceinline__ void CopyQueryTiles(uint16_t* queries,
                                               const BackwardParams& params,
                                               const BlockTile& tile) {
  using Shape = QueryGradientShape<kDim>;
  const int32_t row = tile.q_row + tile.first;
  const int32_t rows = tile.mask.queries - tile.first;
  CopyTile<kDim, Shape::kQueries>(queries, At(params.q, row, tile.head),
                                  params.q.row_stride, rows);
  CopyTile<kDim, Shape::kQueries>(queries + Shape::kQueryTile,
                                  At(params.d_o, row, tile.head),
                                  params.d_o.row_stride, rows);
}

// Grid: schedule.slots * q_heads blocks of kThreads; Shape::kSharedBytes.
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, 2)
    QueryGradientKernel(const __grid_constant__ BackwardParams params,
                        const __grid_constant__ TileSchedule schedule) {
  using Shape = QueryGradientShape<kDim>;
  constexpr int kM = Shape::kM;
  SKRULL_DYNAMIC_SHARED(uint16_t, shared);
  const BlockTile tile =
      FindBlockTile(params.shared, schedule, blockIdx.x, params.shared.q_heads,
                    /*of_keys=*/false);
  if (tile.empty) return;
  const KeyValueRows keys_and_values =
      KeyValueRowsOf(params.shared, params.k, params.v, tile);
  const int32_t end = tile.mask.KeysOfTile(tile.first, Shape::kQueries);

  uint16_t* queries = shared + Shape::kStage;
  CopyQueryTiles<kDim>(queries, params, tile);
  kernels::CommitCopies();
  if (end > 0) {
    CopyKeysAndValues<kDim, Shape::kKeys>(shared, keys_and_values, 0);
  }
  kernels::CommitCopies();
  const int warp_row = 16 * kM * WarpOfThread();
  const int32_t first = tile.first + warp_row;
  const int32_t warp_end = tile.mask.KeysOfTile(first, 16 * kM);
  const RowsOfStatistics<kM> statistics =
      LoadStatistics<kM>(params.statistics, tile, first);
  kernels::WaitForCopies<1>();
  __syncthreads();
  uint32_t q[kDim / 16][kM][4];
  uint32_t d_o[kDim / 16][kM][4];
  LoadRows<kDim>(q, queries, warp_row);
  LoadRows<kDim>(d_o, queries + Shape::kQueryTile, warp_row);

  float dq[kM][kDim / 8][4];
  SetZero(dq);
  for (int32_t key = 0, stage = 0; key < end; key += Shape::kKeys, stage ^= 1) {
    // This tile is there, and all warps are done with the other stage.
    kernels::WaitForCopies<0>();
    __syncthreads();
    if (key + Shape::kKeys < end) {
      CopyKeysAndValues<kDim, Shape::kKeys>(
          shared + (stage ^ 1) * Shape::kStage, keys_and_values,
          key + Shape::kKeys);
    }
    kernels::CommitCopies();
    if (key >= warp_end) continue;  // of this warp's queries none sees them
    const uint16_t* keys = shared + stage * Shape::kStage;
    float s[kM][Shape::kKeys / 8][4];
    float dp[kM][Shape::kKeys / 8][4];
    MultiplyRows<T, kDim>(s, q, keys);
    MultiplyRows<T, kDim>(dp, d_o, keys + Shape::kTile);
    if (tile.mask.Hides(first, key, Shape::kKeys)) {
      HideKeys(s, tile.mask, first, key);
    }
    ScoreGradients(s, dp, statistics, params.shared.scale_log2);
    MultiplyAdd<T, kDim>(dq, s, keys);
  }

  kernels::WaitForCopies<0>();
  __syncthreads();  // all warps are done with both stages
  float factor[kM][2];
  SetRows(factor, params.shared.scale);
  StoreRows<T, kDim>(dq, factor, queries + warp_row * kDim,
                     At(params.dq, tile.q_row + first, tile.head),
                     params.dq.row_stride, tile.mask.queries - first);
}

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_QUERY_GRADIENT_KERNEL_CUH_
