// The checker's own reading of the pipeline figures of a plan.
//
// It shares no code with server/planner/pipeline: every stage's passes are
// written out one by one and timed by what each of them waits for. The rules
// are those of docs/concepts.md, "Pipeline". Pure; safe from any thread.
#ifndef SKRULL_SERVER_PLANNER_PIPELINE_CHECKER_H_
#define SKRULL_SERVER_PLANNER_PIPELINE_CHECKER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/job.h"

namespace skrull {

struct PipelineFigures {
  double seconds = 0;  // until the last stage is done
  double busy = 0;     // summed over all stages of all DP ranks

  // PlanSummary::pipeline_bubble.
  double Bubble(const Job& job) const;
};

// Seconds of the two passes of one unit of work, on every stage.
struct PassSeconds {
  double forward = 0;
  double backward = 0;
};

// One DP rank: units go forward in their order and backward in
// `backward_order`, which lists each once. O(units * pp_size).
PipelineFigures TimePipeline(const Job& job, std::span<const PassSeconds> units,
                             std::span<const int32_t> backward_order);

// All DP ranks: entry i holds who runs micro-batch i together. REQUIRES: each
// DP rank is in at most one component of a micro-batch, and in the pool.
// O(micro-batches * dp_size * pp_size).
PipelineFigures TimePipeline(
    const Job& job, const std::vector<std::vector<Component>>& micro_batches);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_PIPELINE_CHECKER_H_
