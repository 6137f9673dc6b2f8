// What the tiles of one segment see of each other: index math of all kernels.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_SEGMENT_MASK_CUH_
#define SKRULL_CUDA_ATTENTION_CUDA_SEGMENT_MASK_CUH_

#include <cstdint>

#include "skrull/cuda/kernels/portable.cuh"

namespace skrull::exec::flash {

// Rows are counted from the segment's first. Any lengths from 0 on; with fewer
// keys than queries the first queries of a causal segment see none.
struct SegmentMask {
  int32_t queries = 0;
  int32_t keys = 0;
  bool causal = true;

  // Query i sees keys [0, KeysOf(i)); from `queries` on it is none, and all.
  __host__ __device__ int32_t KeysOf(int32_t query) const {
    if (!causal) return keys;
    const int64_t seen = int64_t{query} + 1 + keys - queries;
    if (seen < 0) return 0;
    return seen < keys ? static_cast<int32_t>(seen) : keys;
  }

  // The queries [FirstQueryOf(j), queries) see key j.
  __host__ __device__ int32_t FirstQueryOf(int32_t key) const {
    if (!causal) return 0;
    const int64_t first = int64_t{key} + queries - keys;
    return first < 0 ? 0 : static_cast<int32_t>(first);
  }

  // Key j is hidden from the first of the queries from `query` on, as many as
  // this says, which may be less than 0; and key j + n from n more of them.
  __host__ __device__ int32_t HiddenFrom(int32_t key, int32_t query) const {
    constexpr int32_t kNever = -(1 << 30);
    return causal ? (key - keys) + (queries - query) : kNever;
  }

  // Keys [0, this) are all that the `rows` queries from `first` on see; 0 if
  // none of them is a query.
  __host__ __device__ int32_t KeysOfTile(int32_t first, int32_t rows) const {
    if (first >= queries) return 0;
    const int64_t last = int64_t{first} + rows - 1;
    return KeysOf(last < queries ? static_cast<int32_t>(last) : queries - 1);
  }

  // False if each of the queries from `first_query` on sees all `rows` keys
  // from `first_key` on, so that nothing need be hidden.
  __host__ __device__ bool Hides(int32_t first_query, int32_t first_key,
                                 int32_t rows) const {
    return int64_t{first_key} + rows > KeysOf(first_query);
  }
};

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_SEGMENT_MASK_CUH_
