// Refits what work costs to measured step times.
//
// Pure; safe from any thread.
#ifndef SKRULL_SERVER_CALIBRATION_TIME_FIT_H_
#define SKRULL_SERVER_CALIBRATION_TIME_FIT_H_

#include <optional>
#include <span>

#include "skrull/planner/job.h"
#include "skrull/server/calibration/numbers.h"
#include "skrull/server/calibration/reported_step.h"
#include "skrull/v1/job.pb.h"

namespace skrull::calibration {

struct TimeNumbers {
  double seconds_per_flop = 0;
  double seconds_per_micro_batch = 0;
  double link_scale = 0;
};

struct TimeFit {
  TimeNumbers numbers;
  // Mean of |predicted / measured - 1| with the numbers in force, and with
  // `numbers`; over the steps that are no outliers of the latter.
  double error_before = 0;
  double error_after = 0;
  // The same of |ln(predicted / measured)|, which tells how far off numbers are
  // that predict far too little.
  double size_before = 0;
  double size_after = 0;
};

// The numbers that predict the steps best, near those in force where the steps
// do not tell, and within the bounds of limits.h: kEpochFactor of those in
// force and kTotalFactor of the spec's (`spec_job` is of `spec`). The model is
// linear along each step's critical path; as the path follows from the numbers,
// the fit is repeated along the new paths, and the best of all rounds is taken.
// Steps are counted once each; where a step's ranks reported attention_time or
// exchange_time, the medians of their ratios to the predicted ones count a
// quarter each, so that they tell parts from one another where step times do
// not, and cannot outvote them. Steps without a measured time, and plans of
// chunks, are left out. nullopt if none is left, or if the numbers would make
// the spec invalid.
std::optional<TimeFit> FitTimes(const v1::JobSpec& spec, const Job& spec_job,
                                const Epoch& standing,
                                std::span<const ReportedStep> steps);

}  // namespace skrull::calibration

#endif  // SKRULL_SERVER_CALIBRATION_TIME_FIT_H_
