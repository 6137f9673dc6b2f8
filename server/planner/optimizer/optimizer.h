// POLICY_OPTIMIZED: the best of several constructions, refined.
//
// Every candidate is judged by the step's predicted seconds (StepClock), the
// objective of all policies. The candidates are: longest-first over blocks of
// every degree and un-sharding from all-sharded, each at several micro-batch
// counts and the best of them refined by local search (part_search.h); the
// paper's heuristic; and static CP, packed and not. So no plan is slower than
// one of those policies. Pure and deterministic: budgets count steps.
#ifndef SKRULL_SERVER_PLANNER_OPTIMIZER_OPTIMIZER_H_
#define SKRULL_SERVER_PLANNER_OPTIMIZER_OPTIMIZER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull {

struct OptimizerResult {
  std::vector<MicroBatchPlan> micro_batches;  // placements only
  int64_t roll_back_count = 0;  // of the paper's heuristic, where its plan won
};

// Plans the batch with the job's search_steps; no micro-batches if each
// candidate needs more than `max_micro_batches`. REQUIRES: each length is in
// 1 .. job.longest_sequence(). About O(K log K) for a given number of ranks and
// micro-batches; parts.h says how it grows with the pool.
OptimizerResult RunOptimizer(const Job& job, const CostModel& cost,
                             std::span<const int64_t> lengths,
                             int64_t max_micro_batches);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_OPTIMIZER_OPTIMIZER_H_
