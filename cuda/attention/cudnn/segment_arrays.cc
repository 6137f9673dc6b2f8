#include "skrull/cuda/attention/cudnn/segment_arrays.h"

namespace skrull::exec::cudnn {
namespace {

// Cuts arrays from memory, or only counts where there is none.
class Cutter {
 public:
  explicit Cutter(void* memory) : next_(static_cast<char*>(memory)) {}

  template <class T>
  T* Take(int64_t count) {
    char* const taken = next_;
    const int64_t bytes =
        (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    used_ += bytes;
    if (next_ != nullptr) next_ += bytes;
    return reinterpret_cast<T*>(taken);
  }
  int64_t used() const { return used_; }

 private:
  char* next_;
  int64_t used_ = 0;
};

SegmentArrays Cut(const GraphKey& key, Cutter* cutter) {
  SegmentArrays arrays;
  arrays.segments = static_cast<int32_t>(key.buckets.segments);
  arrays.q_lengths = cutter->Take<int32_t>(arrays.segments);
  arrays.kv_lengths = cutter->Take<int32_t>(arrays.segments);
  arrays.lists = OffsetListsOf(key);
  for (int32_t i = 0; i < arrays.lists.count; ++i) {
    arrays.offsets[i] = cutter->Take<int64_t>(int64_t{arrays.segments} + 1);
  }
  return arrays;
}

}  // namespace

int64_t SegmentArrayBytes(const GraphKey& key) {
  Cutter cutter(nullptr);
  Cut(key, &cutter);
  return cutter.used();
}

SegmentArrays PlaceSegmentArrays(const GraphKey& key, const Segments& segments,
                                 void* memory) {
  Cutter cutter(memory);
  SegmentArrays arrays = Cut(key, &cutter);
  arrays.cu_q = segments.device_cu_q;
  arrays.cu_kv = segments.device_cu_kv;
  arrays.count = segments.bounds.count;
  return arrays;
}

}  // namespace skrull::exec::cudnn
