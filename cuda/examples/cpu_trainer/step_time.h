// From what each rank's micro-batches took to what the step would take with a
// core for each thread.
#ifndef SKRULL_CUDA_EXAMPLES_CPU_TRAINER_STEP_TIME_H_
#define SKRULL_CUDA_EXAMPLES_CPU_TRAINER_STEP_TIME_H_

#include <cstdint>
#include <vector>

#include "skrull/cuda/examples/cpu_trainer/meter.h"
#include "skrull/planner/rank_plan.h"

namespace skrull::examples {

// plans[r] and seconds[r] are rank r's, seconds[r][i] of micro-batch i. A DP
// rank is `cp_size` consecutive ranks. The ranks of DP ranks that a block joins
// start micro-batch i together and end together, as they wait for each other's
// keys and values; the step ends with the last one. It is the rule of the cost
// model ("Time of the step" in docs/concepts.md), applied to what was measured.
double StepSeconds(const std::vector<RankPlan>& plans,
                   const std::vector<std::vector<RankSeconds>>& seconds,
                   int32_t cp_size);

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_CPU_TRAINER_STEP_TIME_H_
