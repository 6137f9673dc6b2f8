// The keys and values that a block of queries walks.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_KEY_VALUE_ROWS_CUH_
#define SKRULL_CUDA_ATTENTION_CUDA_KEY_VALUE_ROWS_CUH_

#include <cstdint>

#include "skrull/cuda/attention/cuda/block_tile.cuh"
#include "skrull/cuda/attention/cuda/kernel_params.h"
#include "skrull/cuda/attention/cuda/shared_tile.cuh"
#include "skrull/cuda/kernels/portable.cuh"

namespace skrull::exec::flash {

// Of one segment and key head; rows are counted from the segment's first.
struct KeyValueRows {
  const uint16_t* k;
  const uint16_t* v;
  int64_t k_stride;
  int64_t v_stride;
  int32_t count;
};

// Of the key head that the tile's query head reads.
__device__ __forceinline__ KeyValueRows
KeyValueRowsOf(const SharedParams& shared, const HalfRows& k, const HalfRows& v,
               const BlockTile& tile) {
  const int32_t head = tile.head / shared.group;
  return {At(k, tile.kv_row, head), At(v, tile.kv_row, head), k.row_stride,
          v.row_stride, tile.mask.keys};
}

// Starts the copies of the kKeys rows from `first` on to a stage, first of the
// keys, then of the values. By all threads.
template <int kDim, int kKeys>
__device__ __forceinline__ void CopyKeysAndValues(uint16_t* stage,
                                                  const KeyValueRows& rows,
                                                  int32_t first) {
  CopyTile<kDim, kKeys>(stage, rows.k + first * rows.k_stride, rows.k_stride,
                        rows.count - first);
  CopyTile<kDim, kKeys>(stage + kKeys * kDim, rows.v + first * rows.v_stride,
                        rows.v_stride, rows.count - first);
}

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_KEY_VALUE_ROWS_CUH_
