// What the row kernels are given, and their index math.
#ifndef SKRULL_CUDA_KERNELS_ROW_JOBS_H_
#define SKRULL_CUDA_KERNELS_ROW_JOBS_H_

#include <cstdint>

#include "skrull/cuda/device.h"
#include "skrull/cuda/kernels/portable.cuh"
#include "skrull/cuda/row_runs.h"
#include "skrull/cuda/tensor.h"

namespace skrull::exec::internal {

// One side of a pair. Strides in elements.
struct RowSide {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};

// Element (row, head, 0), counted from `data`. 64 bit: 262,144 rows of 64 heads
// of 128 are 2^31 elements.
__host__ __device__ __forceinline__ int64_t OffsetOf(const RowSide& side,
                                                     int64_t row,
                                                     int64_t head) {
  return row * side.row_stride + head * side.head_stride;
}

// A RowPair, heads * dim < 2^30. Heads without gaps on both sides are one head
// of all their elements. `is_wide`: 16 bytes of the wider type, and as many
// elements of the other, are aligned wherever they start, and tile a head.
struct RowJob {
  RowSide dst;
  RowSide src;  // only read
  int32_t heads = 0;
  int32_t dim = 0;
  bool is_wide = false;
};

// Job i is that of the blocks with blockIdx.y == i.
struct RowJobs {
  RowJob job[kMaxRowPairs];
};

// Both LSE have the type of `o`.dst: one value for each row and head.
struct MergeJob {
  RowJob o;  // dst: o, src: o_part; one head at a time
  RowSide lse;
  RowSide lse_part;
  int32_t heads = 0;
};

__host__ __device__ __forceinline__ int32_t BeginOf(const CopyRun& run) {
  return run.begin;
}
__host__ __device__ __forceinline__ int32_t BeginOf(const FoldRun& run) {
  return run.dst;
}

// Index of the run that row `row` of the list is in: the last that begins at or
// before it. REQUIRES: count >= 1; 0 <= row < the list's rows. O(log count).
template <class Run>
__host__ __device__ __forceinline__ int32_t FindRun(const Run* runs,
                                                    int32_t count,
                                                    int32_t row) {
  int32_t low = 0;  // begins at or before the row
  int32_t high = count;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    if (BeginOf(runs[middle]) <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_KERNELS_ROW_JOBS_H_
