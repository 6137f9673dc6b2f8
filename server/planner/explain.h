// Why a step takes as long as it does, and which change of the job would help.
#ifndef SKRULL_SERVER_PLANNER_EXPLAIN_H_
#define SKRULL_SERVER_PLANNER_EXPLAIN_H_

#include <cstdint>
#include <span>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/job.h"
#include "skrull/planner/lower_bound.h"
#include "skrull/planner/plan.h"

namespace skrull {

// Explains a plan of micro-batches. The bottleneck is the plan itself where it
// takes over 5 % longer than `bound`, else the largest part of the bound: a
// plan so close can hardly be improved, only the job can. What-ifs are bounds
// of the same batch for the job with one change: a wider block_scope, twice the
// bucket, CP groups twice and half as wide on the same ranks; those are named
// that lower the bound by 1 % or more. `last_rank` is the rank that is busy to
// the end. Pure. REQUIRES: the plan's placements are legal and its summary's
// predicted_seconds is set. O(K * degrees + placements).
Explanation Explain(const Job& job, const CostModel& cost,
                    std::span<const int64_t> lengths, const Plan& plan,
                    const LowerBound& bound, int32_t last_rank);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_EXPLAIN_H_
