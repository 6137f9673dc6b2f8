// From the example trainer's micro-batches to the coefficients of the planner's
// cost model.
#ifndef SKRULL_CUDA_EXAMPLES_MODEL_TRUTH_CALIBRATION_H_
#define SKRULL_CUDA_EXAMPLES_MODEL_TRUTH_CALIBRATION_H_

#include <vector>

#include "skrull/cuda/examples/cpu_trainer/model.h"
#include "skrull/cuda/profile/calibrate.h"

namespace skrull::examples {

// The least squares of skrull-profile (cuda/profile/calibrate.h) without its
// verdict on them: how wrong the model is, is what the comparison is there to
// show. Coefficients of an exchange that the micro-batches say nothing of are
// 0. Errors: INVALID_ARGUMENT if they say nothing of the computing.
exec::Result<profile::Coefficients> FitAll(
    const ModelConfig& model,
    const std::vector<profile::MeasuredMicroBatch>& measured);

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_MODEL_TRUTH_CALIBRATION_H_
