// Segments of an attention call. Segment i: query rows [cu_q[i], cu_q[i+1])
// attend to key rows [cu_kv[i], cu_kv[i+1]), with the segment's own mask.
// Segments are disjoint in both and cover all rows.
#ifndef SKRULL_CUDA_SEGMENTS_H_
#define SKRULL_CUDA_SEGMENTS_H_

#include <cstdint>

namespace skrull::exec {

// The numbers are part of the C interface.
enum class Mask : int32_t {
  // With n queries and m >= n keys, query i sees keys j <= i + m - n.
  kCausalBottomRight = 0,
  kFull = 1,
};

// What bounds a call; enough to choose kernels and to size their workspace.
struct SegmentBounds {
  int32_t count = 0;
  int32_t max_q = 0;  // rows of the longest segment
  int32_t max_kv = 0;
  int64_t total_q = 0;  // rows of all
  int64_t total_kv = 0;
  Mask mask = Mask::kCausalBottomRight;

  friend bool operator==(const SegmentBounds&, const SegmentBounds&) = default;
};

// count >= 1; every segment has q >= 1 rows and kv >= q (causal) or kv >= 1
// (full). The arrays have count + 1 entries, begin with 0 and outlive the work.
struct Segments {
  SegmentBounds bounds;
  const int32_t* cu_q = nullptr;  // on the host
  const int32_t* cu_kv = nullptr;
  const int32_t* device_cu_q = nullptr;  // the same on the device
  const int32_t* device_cu_kv = nullptr;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_SEGMENTS_H_
