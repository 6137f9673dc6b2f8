// Small batches on small pools: the best plan there is.
//
// With a handful of sequences on a few ranks a construction is easily off by a
// tenth, as there is nothing short to fill gaps with; but then the plans can be
// searched one and all.
#ifndef SKRULL_SERVER_PLANNER_OPTIMIZER_BRANCH_AND_BOUND_H_
#define SKRULL_SERVER_PLANNER_OPTIMIZER_BRANCH_AND_BOUND_H_

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull {

// Most sequences and ranks that BranchAndBound takes.
inline constexpr int64_t kMostSearchedSequences = 8;
inline constexpr int64_t kMostSearchedRanks = 8;

// Depth-first over sequences by falling length, each on every block of every
// micro-batch in use and of one more, the choice with the least bound first; a
// branch ends where memory does or where its bound reaches the best plan known.
// The bound is the larger of what the placed sequences take on their DP ranks
// and all work spread evenly. Micro-batches come out in their best order.
//
// Returns the micro-batches, without empty ones, of the first plan found that
// no plan found later beats, if it takes less than `known` seconds; none
// otherwise. Of all plans if fewer than `most_nodes` placements were tried and
// no link has a table that dips; else of those seen until then.
// REQUIRES: at most kMostSearchedSequences lengths, each placeable, and at most
// kMostSearchedRanks ranks in the pool. O(most_nodes * ranks).
std::vector<MicroBatchPlan> BranchAndBound(const Job& job,
                                           const CostModel& cost,
                                           std::span<const int64_t> lengths,
                                           double known, int64_t most_nodes);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_OPTIMIZER_BRANCH_AND_BOUND_H_
