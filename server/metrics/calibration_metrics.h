// What was learnt from step reports, and how well steps were predicted.
#ifndef SKRULL_SERVER_METRICS_CALIBRATION_METRICS_H_
#define SKRULL_SERVER_METRICS_CALIBRATION_METRICS_H_

#include <vector>

#include "skrull/v1/calibration.pb.h"

namespace prometheus {
class Counter;
class Histogram;
class Registry;
}  // namespace prometheus

namespace skrull {

// Thread-safe.
class CalibrationMetrics {
 public:
  // Adds its metrics to `registry`, which must outlive the object.
  explicit CalibrationMetrics(prometheus::Registry& registry);

  // An epoch was put in force.
  void CountEpoch(v1::CalibrationCause cause);
  // A report of running out of memory was answered with a new attempt.
  void CountAttempt();
  // It was refused one.
  void CountExhausted();
  // A step took 1 / `ratio` of its predicted time.
  void ObserveStep(double ratio);

 private:
  std::vector<prometheus::Counter*> epochs_;  // by CalibrationCause
  prometheus::Counter* attempts_;
  prometheus::Counter* exhausted_;
  prometheus::Histogram* ratio_;
  prometheus::Histogram* error_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_METRICS_CALIBRATION_METRICS_H_
