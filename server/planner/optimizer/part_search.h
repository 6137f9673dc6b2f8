// The search for the best plan of one part of the pool.
#ifndef SKRULL_SERVER_PLANNER_OPTIMIZER_PART_SEARCH_H_
#define SKRULL_SERVER_PLANNER_OPTIMIZER_PART_SEARCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/job.h"
#include "skrull/planner/optimizer/parts.h"
#include "skrull/planner/plan.h"

namespace skrull {

// What the search of one part may cost, so that no job and no batch can hold a
// planning thread for long or exhaust memory.
struct SearchLimits {
  double construction_cost = 0;  // see ConstructionCost()
  int64_t search_steps = 0;      // of Refine()
};

// Builds states by every construction, at the fewest micro-batches that memory
// allows and one more, keeps the one with the least predicted time and refines
// it. Stops early when a plan is within 0.2 % of
// work spread evenly. `lengths` is the whole batch. The result's micro-batches
// are in order, placements in none; it is empty if no construction found room
// for all, or if the search would exceed the limits.
std::vector<MicroBatchPlan> SearchPart(const Job& job, const CostModel& cost,
                                       std::span<const int64_t> lengths,
                                       const Part& part,
                                       const SearchLimits& limits);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_OPTIMIZER_PART_SEARCH_H_
