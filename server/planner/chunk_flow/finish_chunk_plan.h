// The figures of a plan of chunks.
#ifndef SKRULL_SERVER_PLANNER_CHUNK_FLOW_FINISH_CHUNK_PLAN_H_
#define SKRULL_SERVER_PLANNER_CHUNK_FLOW_FINISH_CHUNK_PLAN_H_

#include <cstdint>
#include <span>

#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull {

// FinishPlan of a plan with chunks: fills every field that follows from the
// pieces and operations. REQUIRES: plan->chunk_plan is legal for `job` and
// `lengths` but for its figures; with pp_size > 1, chunks * pp_size <=
// kMaxStagePasses. O(pieces + operations * pp_size + dp_size).
void FinishChunkPlan(const Job& job, std::span<const int64_t> lengths,
                     Plan* plan);

// The most rows of a rank of the schedule's CP group whose activations are kept
// at a time. REQUIRES: operations are of chunks of `plan`. O(operations).
int64_t MostKeptRows(const ChunkPlan& plan, const ChunkSchedule& schedule);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_CHUNK_FLOW_FINISH_CHUNK_PLAN_H_
