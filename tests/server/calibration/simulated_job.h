// A training job whose true costs and memory are known, and whose spec is
// wrong about them: what calibration is tested on.
#ifndef SKRULL_TESTS_SERVER_CALIBRATION_SIMULATED_JOB_H_
#define SKRULL_TESTS_SERVER_CALIBRATION_SIMULATED_JOB_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"
#include "skrull/server/calibration/calibrate.h"
#include "skrull/v1/calibration.pb.h"
#include "skrull/v1/job.pb.h"

namespace skrull::testing {

// A 0.5B model on dp x cp ranks of 80 GB that really takes 16 GB for weights
// and 1.4 MB a token, so that a bucket of 42,857 tokens fits with the margin
// that calibration keeps; real links, 20 ms of overhead.
v1::JobSpec TrueSpec(int dp_size, int cp_size);

// By what a spec's numbers are multiplied, or its memory's.
struct Wrong {
  double seconds_per_flop = 1;
  double overhead = 1;
  double link = 1;
  double bytes_per_token = 1;
  double static_bytes = 1;
};
v1::JobSpec WrongSpec(const v1::JobSpec& truth, const Wrong& wrong);

// What ranks report beside step times.
struct Measures {
  bool peaks = true;
  bool parts = false;  // attention_time and exchange_time
};

class SimulatedJob {
 public:
  // Changes the reports of a step before they are stored.
  using Tamper = std::function<void(std::vector<v1::StepReport>*)>;

  SimulatedJob(v1::JobSpec spec, v1::JobSpec truth, uint64_t seed);

  void set_measures(Measures measures) { measures_ = measures; }
  void set_policy(Policy policy) { policy_ = policy; }
  // Standard deviation of the noise of a step's time, relative.
  void set_noise(double noise) { noise_ = noise; }
  // Share of steps that take 1.5 to 3 times as long.
  void set_outliers(double share) { outliers_ = share; }
  void set_tamper(Tamper tamper) { tamper_ = std::move(tamper); }

  // Plans and runs the next step, with as many attempts as it takes, then
  // calibrates where a stretch ends. Throws std::runtime_error if an attempt is
  // refused.
  void RunStep(const std::vector<int64_t>& lengths);
  // `count` steps of random batches of `sequences` sequences whose longest has
  // up to `longest` tokens, a few of them long and most of them short.
  void RunSteps(int count, int64_t sequences, int64_t longest);

  const v1::Calibration& calibration() const { return calibration_; }
  const std::vector<v1::Calibration>& epochs() const { return epochs_; }
  int64_t bucket() const;
  // Attempts that ran out of memory, by step.
  const std::vector<int64_t>& out_of_memory_steps() const { return ooms_; }
  // Mean of |predicted / measured - 1| over the last `count` steps that were no
  // outliers.
  double MeanError(size_t count) const;

 private:
  std::optional<int32_t> Run(const Plan& plan,
                             std::vector<v1::StepReport>* reports);
  v1::Calibration Advance(v1::Calibration next);

  const v1::JobSpec spec_;
  const v1::JobSpec truth_;
  const Job true_job_;
  std::mt19937_64 random_;
  Measures measures_;
  std::optional<Policy> policy_;
  double noise_ = 0.03;
  double outliers_ = 0.05;
  Tamper tamper_;
  int64_t step_ = 0;
  v1::Calibration calibration_;
  std::vector<v1::Calibration> epochs_;
  std::deque<calibration::ReportedStep> steps_;
  std::vector<int64_t> ooms_;
  std::vector<double> errors_;  // of steps that were no outliers
};

// The job of `spec` in the epoch `record`; throws if it is invalid.
Job CalibratedJob(const v1::JobSpec& spec, const v1::Calibration& record);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SERVER_CALIBRATION_SIMULATED_JOB_H_
