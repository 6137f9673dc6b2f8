// The state-aware order of chunks (ChunkFlow, arXiv 2503.02356), on one stage
// and on many. Pure; safe from any thread.
#ifndef SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHUNK_SCHEDULE_H_
#define SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHUNK_SCHEDULE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/planner/chunk_flow/chunk_cost.h"
#include "skrull/planner/chunk_plan.h"
#include "skrull/planner/job.h"
#include "skrull/planner/pipeline/simulator.h"

namespace skrull {

// What a DP rank does for one group, the chunks first .. first + count - 1,
// with at most `retained` of them keeping activations:
//  - count <= retained: all forward, then all backward, last to first;
//  - else all forward, the activations of all but the last `retained`
//    discarded; those backward, last to first; then each earlier one, last to
//    first, is recomputed and goes backward.
// REQUIRES: count >= 1, retained >= 1. O(count).
std::vector<ChunkOperation> StateAwareSchedule(int32_t first, int32_t count,
                                               int64_t retained);

// One DP rank's operations in the pipeline, by state-aware 1F1B: chunks go
// forward and backward in the order of those operations, and recompute when
// their gradient arrives. The operations' chunks are indices in `chunks`;
// `scratch` is any vector, to be used again. REQUIRES: each chunk named goes
// forward first and backward once. O(operations * pp_size), and O(chunks) where
// `scratch` is smaller than that.
PipelineTime TimeInPipeline(const Job& job, const ChunkCost& chunk_cost,
                            std::span<const Chunk> chunks,
                            std::span<const ChunkOperation> operations,
                            std::vector<int32_t>* scratch);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHUNK_SCHEDULE_H_
