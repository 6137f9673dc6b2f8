// What ranks measured of their micro-batches, for skrull-profile --from-log
// (cuda/profile/log.h).
#ifndef SKRULL_CUDA_EXAMPLES_CPU_TRAINER_STEP_LOG_H_
#define SKRULL_CUDA_EXAMPLES_CPU_TRAINER_STEP_LOG_H_

#include <cstdint>
#include <ostream>
#include <vector>

#include "skrull/cuda/examples/cpu_trainer/meter.h"
#include "skrull/cuda/profile/calibrate.h"
#include "skrull/planner/rank_plan.h"

namespace skrull::examples {

profile::MeasuredMicroBatch ToMeasured(const RankMicroBatch& micro_batch,
                                       const RankSeconds& seconds);

// A line for each micro-batch of one rank's step. REQUIRES: as many seconds as
// the plan has micro-batches.
void WriteStep(const RankPlan& plan, const std::vector<RankSeconds>& seconds,
               std::ostream* out);

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_CPU_TRAINER_STEP_LOG_H_
