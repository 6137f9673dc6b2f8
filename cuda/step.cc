#include "skrull/cuda/step.h"

#include <cstddef>
#include <utility>

#include "skrull/cuda/list_upload.h"
#include "skrull/cuda/step_state.h"

namespace skrull::exec {
namespace internal {

Status Place(Device* device, StepState* state) {
  ListUpload upload;
  for (MicroBatchState& mb : state->micro_batches) {
    upload.AddSegments(mb.maps.local, &mb.local);
    upload.AddSegments(mb.maps.local_first, &mb.local_first);
    upload.AddSegments(mb.maps.local_second, &mb.local_second);
    upload.AddSegments(mb.maps.sharded, &mb.sharded);
    mb.blocks.resize(mb.maps.blocks.size());
    for (size_t b = 0; b < mb.blocks.size(); ++b) {
      const BlockMaps& maps = mb.maps.blocks[b];
      upload.AddRuns(maps.pack, &mb.blocks[b].pack);
      upload.AddRuns(maps.deliver, &mb.blocks[b].deliver);
      upload.AddRuns(maps.unpack, &mb.blocks[b].unpack);
      upload.AddRuns(maps.fold, &mb.blocks[b].fold);
    }
    mb.ring.resize(mb.ring_maps.size());
    for (size_t t = 0; t < mb.ring.size(); ++t) {
      const RingStep& maps = mb.ring_maps[t];
      RingStepRuns& runs = mb.ring[t];
      upload.AddSegments(maps.segments, &runs.segments);
      upload.AddRuns(maps.queries, &runs.queries);
      upload.AddRuns(maps.results, &runs.results);
      runs.keys.resize(maps.keys.size());
      for (size_t b = 0; b < maps.keys.size(); ++b) {
        upload.AddRuns(maps.keys[b].take, &runs.keys[b].take);
        upload.AddRuns(maps.keys[b].give, &runs.keys[b].give);
      }
    }
  }
  return upload.Send(device, &state->device_lists);
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
