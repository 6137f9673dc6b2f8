// What a block of the attention kernels works on.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_BLOCK_TILE_CUH_
#define SKRULL_CUDA_ATTENTION_CUDA_BLOCK_TILE_CUH_

#include <cstdint>

#include "skrull/cuda/attention/cuda/kernel_params.h"
#include "skrull/cuda/attention/cuda/segment_mask.cuh"
#include "skrull/cuda/attention/cuda/tile_schedule.cuh"
#include "skrull/cuda/kernels/portable.cuh"

namespace skrull::exec::flash {

struct BlockTile {
  bool empty = true;  // nothing to do; the rest is not set
  int32_t head = 0;   // query head of query tiles, key head of key tiles
  int32_t first = 0;  // of the tile's rows, within the segment
  int32_t q_row = 0;  // the segment's first query row and key row
  int32_t kv_row = 0;
  SegmentMask mask;
};

// Of block `block`. `of_keys`: tiles are rows of keys, else of queries; `heads`
// are those of their kind.
__host__ __device__ inline BlockTile FindBlockTile(const SharedParams& params,
                                                   const TileSchedule& schedule,
                                                   int64_t block, int32_t heads,
                                                   bool of_keys) {
  // With a causal mask the last queries see the most keys, and the first keys
  // are seen by the most queries.
  const SegmentTile found =
      FindTile(schedule, of_keys ? params.cu_kv : params.cu_q,
               static_cast<int32_t>(block / heads), /*last_first=*/!of_keys);
  BlockTile tile;
  if (found.segment < 0) return tile;
  const int32_t s = found.segment;
  tile.empty = false;
  tile.head = static_cast<int32_t>(block % heads);
  tile.first = found.tile * schedule.tile_rows;
  tile.q_row = params.cu_q[s];
  tile.kv_row = params.cu_kv[s];
  tile.mask = {params.cu_q[s + 1] - params.cu_q[s],
               params.cu_kv[s + 1] - params.cu_kv[s], params.causal};
  return tile;
}

// The first element of a row and head.
template <class T>
__host__ __device__ inline T* At(const StridedRows<T>& rows, int64_t row,
                                 int32_t head) {
  return rows.data + row * rows.row_stride + head * rows.head_stride;
}

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_BLOCK_TILE_CUH_
