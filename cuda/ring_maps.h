// Maps of the ring exchange: in step t a rank holds the slot of the rank t
// places below it in the block, attends to it, and passes it on. Pure.
#ifndef SKRULL_CUDA_RING_MAPS_H_
#define SKRULL_CUDA_RING_MAPS_H_

#include <cstdint>
#include <vector>

#include "skrull/cuda/maps.h"

namespace skrull::exec {

// The key rows that a step takes from one block's travelling slot.
struct RingKeys {
  // Key row of the step's call (dst) <- slot row (src).
  std::vector<CopyRun> take;
  // Slot row (dst) <- key row of the step's call (src): the reverse.
  std::vector<CopyRun> give;

  friend bool operator==(const RingKeys&, const RingKeys&) = default;
};

// One attention call over all blocks with degree > t. With the slot of rank s
// of the block, rank r of it computes, for each sequence,
//   s = r: low and high queries, low and high keys, causal;
//   s < r: low and high queries, low keys, no mask;
//   s > r: high queries, low and high keys, no mask.
// Step 0 is causal, all others have no mask.
struct RingStep {
  SegmentList segments;  // empty where the rank has nothing to compute
  // Query row of the call (dst) <- sharded row (src, from local_rows on).
  std::vector<CopyRun> queries;
  std::vector<CopyRun> results;  // the reverse
  std::vector<RingKeys> keys;    // one for each of MicroBatchMaps::blocks

  friend bool operator==(const RingStep&, const RingStep&) = default;
};

// As many steps as the largest degree of the rank's blocks; none without
// blocks. REQUIRES: `maps` = BuildMaps(micro_batch, rank, ...).
// O(segments * degree).
std::vector<RingStep> BuildRingSteps(const RankMicroBatch& micro_batch,
                                     const MicroBatchMaps& maps);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_RING_MAPS_H_
