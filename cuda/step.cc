#include "skrull/cuda/step.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "skrull/cuda/step_state.h"

namespace skrull::exec {
namespace internal {
namespace {

// Arrays gathered for one upload, and who wants to know where they went.
class Placement {
 public:
  template <class T>
  void Add(const std::vector<T>& array, const T** device_pointer) {
    constexpr size_t kAlignment = 16;
    bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment);
    const size_t offset = bytes_.size();
    bytes_.resize(offset + array.size() * sizeof(T));
    if (!array.empty()) {
      std::memcpy(bytes_.data() + offset, array.data(),
                  array.size() * sizeof(T));
    }
    users_.push_back([=](const char* base) {
      *device_pointer = reinterpret_cast<const T*>(base + offset);
    });
  }

  template <class Run>
  void AddRuns(const std::vector<Run>& runs, RunList<Run>* list) {
    list->host = runs.data();
    list->count = static_cast<int32_t>(runs.size());
    list->rows = 0;
    for (const Run& run : runs) list->rows += run.count;
    Add(runs, &list->device);
  }

  void AddSegments(const SegmentList& list, Segments* segments) {
    segments->bounds = list.bounds();
    segments->cu_q = list.cu_q.data();
    segments->cu_kv = list.cu_kv.data();
    Add(list.cu_q, &segments->device_cu_q);
    Add(list.cu_kv, &segments->device_cu_kv);
  }

  Status Upload(Device* device, Buffer* buffer) {
    const auto bytes = static_cast<int64_t>(bytes_.size());
    Result<Buffer> memory = device->Allocate(bytes);
    SKRULL_EXEC_RETURN_IF_ERROR(memory.status());
    *buffer = *std::move(memory);
    SKRULL_EXEC_RETURN_IF_ERROR(
        device->Upload(buffer->data(), bytes_.data(), bytes));
    for (const auto& user : users_) {
      user(static_cast<const char*>(buffer->data()));
    }
    return {};
  }

 private:
  std::vector<char> bytes_;
  std::vector<std::function<void(const char*)>> users_;
};

}  // namespace

Status Place(Device* device, StepState* state) {
  Placement placement;
  for (MicroBatchState& mb : state->micro_batches) {
    placement.AddSegments(mb.maps.local, &mb.local);
    placement.AddSegments(mb.maps.local_first, &mb.local_first);
    placement.AddSegments(mb.maps.local_second, &mb.local_second);
    placement.AddSegments(mb.maps.sharded, &mb.sharded);
    mb.blocks.resize(mb.maps.blocks.size());
    for (size_t b = 0; b < mb.blocks.size(); ++b) {
      const BlockMaps& maps = mb.maps.blocks[b];
      placement.AddRuns(maps.pack, &mb.blocks[b].pack);
      placement.AddRuns(maps.deliver, &mb.blocks[b].deliver);
      placement.AddRuns(maps.unpack, &mb.blocks[b].unpack);
      placement.AddRuns(maps.fold, &mb.blocks[b].fold);
    }
    mb.ring.resize(mb.ring_maps.size());
    for (size_t t = 0; t < mb.ring.size(); ++t) {
      const RingStep& maps = mb.ring_maps[t];
      RingStepRuns& runs = mb.ring[t];
      placement.AddSegments(maps.segments, &runs.segments);
      placement.AddRuns(maps.queries, &runs.queries);
      placement.AddRuns(maps.results, &runs.results);
      runs.keys.resize(maps.keys.size());
      for (size_t b = 0; b < maps.keys.size(); ++b) {
        placement.AddRuns(maps.keys[b].take, &runs.keys[b].take);
        placement.AddRuns(maps.keys[b].give, &runs.keys[b].give);
      }
    }
  }
  return placement.Upload(device, &state->device_lists);
}

}  // namespace internal

Step::Step(std::unique_ptr<internal::StepState> state)
    : state_(std::move(state)) {}

Step::Step(Step&&) noexcept = default;

Step& Step::operator=(Step&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Step::~Step() {
  if (state_ != nullptr) state_->fence->HostWait();
}

int32_t Step::micro_batch_count() const {
  return static_cast<int32_t>(state_->micro_batches.size());
}

const MicroBatchMaps& Step::maps(int32_t micro_batch) const {
  return state_->micro_batches[static_cast<size_t>(micro_batch)].maps;
}

}  // namespace skrull::exec
