// What is inside a ChunkStep. For the chunk executor and its engine alone.
#ifndef SKRULL_CUDA_CHUNK_STEP_STATE_H_
#define SKRULL_CUDA_CHUNK_STEP_STATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "skrull/cuda/chunk_program.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/fence.h"
#include "skrull/cuda/row_runs.h"
#include "skrull/cuda/segments.h"
#include "skrull/cuda/status.h"
#include "skrull/planner/chunk_plan.h"

namespace skrull::exec::internal {

// Lists of the maps, on host and device.
struct ChunkCallRuns {
  Segments segments;
  RunList<CopyRun> add;
};

struct ChunkRuns {
  RunList<CopyRun> pack, store, copies, deliver;
  RunList<FoldRun> fold;
  std::vector<ChunkCallRuns> calls;
};

struct ChunkStepState {
  std::shared_ptr<Fence> fence;
  int64_t number = 0;  // among the steps of the executor, from 1
  std::vector<ChunkOperation> operations;  // the plan's
  // Elements never move once PlaceChunks has made their views.
  ChunkProgram program;
  std::vector<ChunkRuns> runs;  // of each chunk
  Buffer device_lists;
};

// Copies all lists of the state to the device, in one piece, and sets the
// views. Errors: those of the device.
Status PlaceChunks(Device* device, ChunkStepState* state);

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_CHUNK_STEP_STATE_H_
