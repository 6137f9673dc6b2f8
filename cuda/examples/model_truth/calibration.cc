#include "skrull/cuda/examples/model_truth/calibration.h"

#include <limits>

#include "skrull/cuda/examples/cpu_trainer/job_text.h"

namespace skrull::examples {

exec::Result<profile::Coefficients> FitAll(
    const ModelConfig& model,
    const std::vector<profile::MeasuredMicroBatch>& measured) {
  constexpr double kAnyError = std::numeric_limits<double>::infinity();
  const profile::ModelShape shape = ShapeOf(model);
  const profile::CostForm form = TrainerForm();
  const profile::LinearFit compute =
      profile::FitCompute(shape, form, measured, kAnyError);
  if (!(compute.value[profile::kSecondsPerFlop] > 0)) return compute.verdict;
  const profile::LinearFit link =
      profile::FitExchange(shape, form, measured, kAnyError);
  profile::Coefficients fitted;
  profile::SetCompute(compute, &fitted);
  fitted.seconds_per_collective = link.value[profile::kSecondsPerCollective];
  fitted.seconds_per_byte = link.value[profile::kSecondsPerByte];
  return fitted;
}

}  // namespace skrull::examples
