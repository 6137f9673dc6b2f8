// What is inside a Step. For the executor and its engines alone.
#ifndef SKRULL_CUDA_STEP_STATE_H_
#define SKRULL_CUDA_STEP_STATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "skrull/cuda/device.h"
#include "skrull/cuda/fence.h"
#include "skrull/cuda/maps.h"
#include "skrull/cuda/ring_maps.h"
#include "skrull/cuda/row_runs.h"
#include "skrull/cuda/segments.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::internal {

// Lists of the maps, on host and device.
struct BlockRuns {
  RunList<CopyRun> pack, deliver, unpack;
  RunList<FoldRun> fold;
};

struct RingKeyRuns {
  RunList<CopyRun> take, give;
};

struct RingStepRuns {
  Segments segments;
  RunList<CopyRun> queries, results;
  std::vector<RingKeyRuns> keys;  // one for each block
};

struct MicroBatchState {
  MicroBatchMaps maps;
  std::vector<RingStep> ring_maps;  // for Exchange::kRing only

  // Views of the maps. Those of empty lists have count 0.
  Segments local, local_first, local_second, sharded;
  std::vector<BlockRuns> blocks;
  std::vector<RingStepRuns> ring;
};

struct StepState {
  std::shared_ptr<Fence> fence;
  // Elements never move once Place has made their views.
  std::vector<MicroBatchState> micro_batches;
  Buffer device_lists;
  // The lists lie in the maps on the host, and in device_lists.
};

// Copies all lists of the state to the device, in one piece, and sets the
// views. Errors: those of the device.
Status Place(Device* device, StepState* state);

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_STEP_STATE_H_
