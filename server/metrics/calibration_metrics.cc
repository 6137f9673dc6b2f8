#include "skrull/server/metrics/calibration_metrics.h"

#include <cmath>

#include "skrull/server/metrics/builders.h"

namespace skrull {

CalibrationMetrics::CalibrationMetrics(prometheus::Registry& registry) {
  for (int cause = v1::CalibrationCause_MIN; cause <= v1::CalibrationCause_MAX;
       ++cause) {
    epochs_.push_back(
        AddCounter(registry, "skrull_calibration_epochs_total",
                   "Calibration epochs that began, by cause.",
                   {{"cause", v1::CalibrationCause_Name(
                                  static_cast<v1::CalibrationCause>(cause))}}));
  }
  attempts_ = AddCounter(registry, "skrull_attempts_total",
                         "Reports of running out of memory that were answered "
                         "with a new attempt.");
  exhausted_ =
      AddCounter(registry, "skrull_attempts_exhausted_total",
                 "Reports of running out of memory that were refused a "
                 "further attempt.");
  ratio_ = AddHistogram(
      registry, "skrull_step_time_ratio",
      "Predicted over measured time of steps.",
      {0.1, 0.2, 0.5, 0.75, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 5, 10});
  error_ = AddHistogram(registry, "skrull_step_time_error_ratio",
                        "How far predicted times of steps are from measured "
                        "ones, |predicted / measured - 1|.",
                        RatioBuckets());
}

void CalibrationMetrics::CountEpoch(v1::CalibrationCause cause) {
  epochs_[static_cast<size_t>(cause)]->Increment();
}

void CalibrationMetrics::CountAttempt() { attempts_->Increment(); }

void CalibrationMetrics::CountExhausted() { exhausted_->Increment(); }

void CalibrationMetrics::ObserveStep(double ratio) {
  ratio_->Observe(ratio);
  error_->Observe(std::abs(ratio - 1));
}

}  // namespace skrull
