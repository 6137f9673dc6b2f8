// The order of a plan's micro-batches in the pipeline.
#ifndef SKRULL_SERVER_PLANNER_PIPELINE_ORDER_H_
#define SKRULL_SERVER_PLANNER_PIPELINE_ORDER_H_

#include <compare>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull {

// What plans of one batch are compared by, in this order.
struct StepSeconds {
  double pipeline = 0;   // pipeline_seconds; 0 if pp_size is 1
  double predicted = 0;  // predicted_seconds

  friend auto operator<=>(const StepSeconds&, const StepSeconds&) = default;
};

// The step's time. With pp_size > 1 it first gives the micro-batches an order:
// each convoy (step_pipeline.h) takes its own in the order with the least
// simulated makespan among the given one, longest first, shortest first, and
// what moving one at a time makes of the best of them; the convoys' i-th
// micro-batches then form the plan's i-th, with placements by sequence. Never a
// larger makespan than that of the order given. REQUIRES: placements are legal
// for `job` (figures may be unset); with pp_size > 1, micro-batches * dp_size *
// pp_size <= kMaxStagePasses (planner.h). Bounded by a few times the cost of
// one simulation and a fixed number of stage passes; O(placements + ranks *
// micro-batches) with pp_size 1.
StepSeconds OrderMicroBatches(const Job& job, const CostModel& cost,
                              std::vector<MicroBatchPlan>* micro_batches);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_PIPELINE_ORDER_H_
