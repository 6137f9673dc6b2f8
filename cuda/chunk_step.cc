#include "skrull/cuda/chunk_step.h"

#include <cstddef>
#include <utility>

#include "skrull/cuda/chunk_step_state.h"
#include "skrull/cuda/list_upload.h"

namespace skrull::exec {
namespace internal {

Status PlaceChunks(Device* device, ChunkStepState* state) {
  ListUpload upload;
  state->runs.resize(state->program.chunks.size());
  for (size_t c = 0; c < state->runs.size(); ++c) {
    const ChunkMaps& maps = state->program.chunks[c].maps;
    ChunkRuns& runs = state->runs[c];
    upload.AddRuns(maps.pack, &runs.pack);
    upload.AddRuns(maps.store, &runs.store);
    upload.AddRuns(maps.copies, &runs.copies);
    upload.AddRuns(maps.fold, &runs.fold);
    upload.AddRuns(maps.deliver, &runs.deliver);
    runs.calls.resize(maps.calls.size());
    for (size_t i = 0; i < runs.calls.size(); ++i) {
      upload.AddSegments(maps.calls[i].segments, &runs.calls[i].segments);
      upload.AddRuns(maps.calls[i].add, &runs.calls[i].add);
    }
  }
  return upload.Send(device, &state->device_lists);
}

}  // namespace internal

ChunkStep::ChunkStep(std::unique_ptr<internal::ChunkStepState> state)
    : state_(std::move(state)) {}

ChunkStep::ChunkStep(ChunkStep&&) noexcept = default;

ChunkStep& ChunkStep::operator=(ChunkStep&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

ChunkStep::~ChunkStep() {
  if (state_ != nullptr) state_->fence->HostWait();
}

int32_t ChunkStep::operation_count() const {
  return static_cast<int32_t>(state_->operations.size());
}

const ChunkProgram& ChunkStep::program() const { return state_->program; }

const ChunkMaps& ChunkStep::maps(int32_t operation) const {
  const ProgramOperation& op =
      state_->program.operations[static_cast<size_t>(operation)];
  return state_->program.chunks[static_cast<size_t>(op.chunk)].maps;
}

}  // namespace skrull::exec
