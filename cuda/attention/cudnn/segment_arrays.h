// The arrays that tell a cuDNN graph where segments lie: lengths, and offsets
// of their first elements. Written on the stream before each call.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_SEGMENT_ARRAYS_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_SEGMENT_ARRAYS_H_

#include <cstdint>

#include "skrull/cuda/attention/cudnn/graph_key.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/segments.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::cudnn {

// All pointers are to the device's memory. Segments at and after `count`, up to
// `segments`, are fillers: no rows, behind the last row.
struct SegmentArrays {
  const int32_t* cu_q = nullptr;  // [count + 1], only read
  const int32_t* cu_kv = nullptr;
  int32_t count = 0;
  int32_t segments = 0;           // the graph's; >= count
  int32_t* q_lengths = nullptr;   // [segments]
  int32_t* kv_lengths = nullptr;  // [segments]
  OffsetLists lists;
  // [segments + 1] each: 64 bits, for 262,144 rows of 64 heads of 128 are 2^31
  // elements.
  int64_t* offsets[kRoles] = {};
};

// The bytes of a graph's arrays, a multiple of 256.
int64_t SegmentArrayBytes(const GraphKey& key);

// The arrays of a call in `memory`, 256-byte aligned. REQUIRES: the segments
// are within the key's buckets.
SegmentArrays PlaceSegmentArrays(const GraphKey& key, const Segments& segments,
                                 void* memory);

// Enqueues what fills them. Shapes: as above. Errors: INVALID_ARGUMENT for a
// count outside 1 .. segments or a null pointer; DEVICE_ERROR.
Status LaunchSegmentArrays(const SegmentArrays& arrays, Stream stream);

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_SEGMENT_ARRAYS_H_
