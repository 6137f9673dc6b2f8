// The forward pass: FlashAttention-2 (Dao, 2023), Algorithm 1, on segments. A
// block holds one tile of queries of one head in registers and walks the keys
// that it sees; the next tile of keys and values is copied while this one is
// multiplied. Rows of queries are a warp's own, so that P never leaves its
// registers.
//
// Differences from the listing: scores stay unscaled and exponentials are
// powers of 2; a query without keys gets O = 0 and LSE = -inf.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_FORWARD_KERNEL_CUH_
#define SKRULL_CUDA_ATTENTION_CUDA_FORWARD_KERNEL_CUH_

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

// Tiles of 64 keys, and of 64 queries with 128 columns, else 128: then O, S and
// Q of a thread are 128 or 160 registers, which leaves room for addresses
// below the 255 that two blocks of a multiprocessor can have.
template <int kDim>
struct ForwardShape {
  static constexpr int kM = kDim == 64 ? 2 : 1;  // fragments of a warp's rows
  static constexpr int kQueries = 16 * kM * kWarps;
  static constexpr int kKeys = 64;
  static constexpr int kTile = kKeys * kDim;  // elements
  static constexpr int kStage = 2 * kTile;    // keys, then values
  // Queries lie in the second stage until they are in registers.
  static constexpr int kSharedBytes = 2 * kStage * 2;
  static_assert(kQueries * kDim <= kStage);
};

// Of the rows (m, h) of a warp: the largest score and the thread's part of the
// sum of exponentials, relative to it.
template <int kM>
struct OnlineSoftmax {
  float most[kM][2];
  float sum[kM][2];
};

// The largest, or the sum, of the 4 lanes that hold a row.
__device__ __forceinline__ float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0U, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0U, x, 2));
}
__device__ __forceinline__ float QuadSum(float x) {
  x += __shfl_xor_sync(~0U, x, 1);
  return x + __shfl_xor_sync(~0U, x, 2);
}

// Turns scores into exponentials relative to the new largest score, and scales
// what was summed before to it.
template <int kM, int kN, int kColumns>
__device__ __forceinline__ void Exponentials(float (&s)[kM][kN][4],
                                             float (&o)[kM][kColumns][4],
                                             OnlineSoftmax<kM>& state,
                                             float scale_log2) {
  SKRULL_UNROLL
  for (int m = 0; m < kM; ++m) {
    SKRULL_UNROLL
    for (int h = 0; h < 2; ++h) {
      float most = state.most[m][h];
      SKRULL_UNROLL
      for (int n = 0; n < kN; ++n) {
        most = fmaxf(most, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
      }
      most = QuadMax(most);
      // A row that has seen no key must not subtract infinities.
      const float shift = most == -INFINITY ? 0 : most * scale_log2;
      const float fade = kernels::Exp2(state.most[m][h] * scale_log2 - shift);
      float sum = 0;
      SKRULL_UNROLL
      for (int n = 0; n < kN; ++n) {
        SKRULL_UNROLL
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          s[m][n][i] = kernels::Exp2(s[m][n][i] * scale_log2 - shift);
          sum += s[m][n][i];
        }
      }
      state.most[m][h] = most;
      state.sum[m][h] = state.sum[m][h] * fade + sum;
      SKRULL_UNROLL
      for (int n = 0; n < kColumns; ++n) {
        o[m][n][2 * h] *= fade;
        o[m][n][2 * h + 1] *= fade;
      }
    }
  }
}

// Writes LSE and gives the factors that make sums of O means. `first` is the
// warp's first query within the segment.
template <int kM>
__device__ __forceinline__ void FinishRows(const ForwardParams& params,
                                           const BlockTile& tile, int32_t first,
                                           const OnlineSoftmax<kM>& state,
                                           float (&factor)[kM][2]) {
  SKRULL_UNROLL
  for (int m = 0; m < kM; ++m) {
    SKRULL_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float sum = QuadSum(state.sum[m][h]);
      const bool blind = sum == 0;
      factor[m][h] = blind ? 0 : 1 / sum;
      const int32_t query = first + FragmentRow(m, h);
      if (LaneOfThread() % 4 == 0 && query < tile.mask.queries) {
        *At(params.lse, tile.q_row + query, tile.head) =
            blind ? -INFINITY
                  : state.most[m][h] * params.shared.scale + logf(sum);
      }
    }
  }
}

// Grid: schedule.slots * q_heads blocks of kThreads; Shape::kSharedBytes.
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, 2)
    ForwardKernel(const __grid_constant__ ForwardParams params,
                  const __grid_constant__ TileSchedule schedule) {
  using Shape = ForwardShape<kDim>;
  constexpr int kM = Shape::kM;
  SKRULL_DYNAMIC_SHARED(uint16_t, shared);
  const BlockTile tile =
      FindBlockTile(params.shared, schedule, blockIdx.x, params.shared.q_heads,
                    /*of_keys=*/false);
  if (tile.empty) return;
  const KeyValueRows rows =
      KeyValueRowsOf(params.shared, params.k, params.v, tile);
  const int32_t end = tile.mask.KeysOfTile(tile.first, Shape::kQueries);

  CopyTile<kDim, Shape::kQueries>(
      shared + Shape::kStage, At(params.q, tile.q_row + tile.first, tile.head),
      params.q.row_stride, tile.mask.queries - tile.first);
  kernels::CommitCopies();
  if (end > 0) CopyKeysAndValues<kDim, Shape::kKeys>(shared, rows, 0);
  kernels::CommitCopies();
  kernels::WaitForCopies<1>();
  __syncthreads();
  const int warp_row = 16 * kM * WarpOfThread();
  uint32_t q[kDim / 16][kM][4];
  LoadRows<kDim>(q, shared + Shape::kStage, warp_row);

  const int32_t first = tile.first + warp_row;
  const int32_t warp_end = tile.mask.KeysOfTile(first, 16 * kM);
  float o[kM][kDim / 8][4];
  SetZero(o);
  OnlineSoftmax<kM> state;
  SetRows(state.most, -INFINITY);
  SetRows(state.sum, 0);
  for (int32_t key = 0, stage = 0; key < end; key += Shape::kKeys, stage ^= 1) {
    // This tile is there, and all warps are done with the other stage.
    kernels::WaitForCopies<0>();
    __syncthreads();
    if (key + Shape::kKeys < end) {
      CopyKeysAndValues<kDim, Shape::kKeys>(
          shared + (stage ^ 1) * Shape::kStage, rows, key + Shape::kKeys);
    }
    kernels::CommitCopies();
    if (key >= warp_end) continue;  // of this warp's queries none sees them
    const uint16_t* keys = shared + stage * Shape::kStage;
    float s[kM][Shape::kKeys / 8][4];
    MultiplyRows<T, kDim>(s, q, keys);
    if (tile.mask.Hides(first, key, Shape::kKeys)) {
      HideKeys(s, tile.mask, first, key);
    }
    Exponentials(s, o, state, params.shared.scale_log2);
    MultiplyAdd<T, kDim>(o, s, keys + Shape::kTile);
  }

  kernels::WaitForCopies<0>();
  float factor[kM][2];
  FinishRows(params, tile, first, state, factor);
  __syncthreads();  // all warps are done with both stages
  StoreRows<T, kDim>(o, factor, shared + warp_row * kDim,
                     At(params.o, tile.q_row + first, tile.head),
                     params.o.row_stride, tile.mask.queries - first);
}

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_FORWARD_KERNEL_CUH_
