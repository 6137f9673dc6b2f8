// The kernel of segment_arrays.h.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_SEGMENT_ARRAYS_CUH_
#define SKRULL_CUDA_ATTENTION_CUDNN_SEGMENT_ARRAYS_CUH_

#include <cstdint>

#include "skrull/cuda/attention/cudnn/segment_arrays.h"
#include "skrull/cuda/kernels/portable.cuh"

namespace skrull::exec::cudnn {

// Entry i of every array in thread i, 0 <= i <= segments; lengths have none at
// the end.
__global__ void WriteSegmentArrays(SegmentArrays arrays) {
  const auto i = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i > arrays.segments) return;
  const bool filler = i >= arrays.count;
  const int32_t from = filler ? arrays.count : i;
  const int32_t to = filler ? arrays.count : i + 1;
  if (i < arrays.segments) {
    arrays.q_lengths[i] = arrays.cu_q[to] - arrays.cu_q[from];
    arrays.kv_lengths[i] = arrays.cu_kv[to] - arrays.cu_kv[from];
  }
  for (int32_t list = 0; list < arrays.lists.count; ++list) {
    const OffsetList& kind = arrays.lists.lists[list];
    const int64_t row = kind.key_rows ? arrays.cu_kv[from] : arrays.cu_q[from];
    arrays.offsets[list][i] = row * kind.row_stride;
  }
}

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_SEGMENT_ARRAYS_CUH_
