#include <string>

#include "skrull/cuda/attention/cudnn/segment_arrays.cuh"

namespace skrull::exec::cudnn {

Status LaunchSegmentArrays(const SegmentArrays& arrays, Stream stream) {
  if (arrays.count < 1 || arrays.count > arrays.segments) {
    return InvalidArgument(std::to_string(arrays.count) +
                           " segments, where the graph has " +
                           std::to_string(arrays.segments));
  }
  bool given = arrays.cu_q != nullptr && arrays.cu_kv != nullptr &&
               arrays.q_lengths != nullptr && arrays.kv_lengths != nullptr;
  for (int32_t i = 0; i < arrays.lists.count; ++i) {
    given = given && arrays.offsets[i] != nullptr;
  }
  if (!given) return InvalidArgument("segment arrays without memory");
  constexpr unsigned kThreads = 256;
  const unsigned blocks = static_cast<unsigned>(arrays.segments) / kThreads + 1;
  return SKRULL_LAUNCH((WriteSegmentArrays), blocks, kThreads, 0, stream,
                       arrays);
}

}  // namespace skrull::exec::cudnn
