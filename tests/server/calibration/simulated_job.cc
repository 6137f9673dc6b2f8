#include "skrull/tests/server/calibration/simulated_job.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/planner.h"
#include "skrull/server/calibration/apply.h"
#include "skrull/server/calibration/limits.h"
#include "skrull/server/convert.h"

namespace skrull::testing {
namespace {

void SetSeconds(double seconds, google::protobuf::Duration* duration) {
  const double whole = std::floor(seconds);
  duration->set_seconds(static_cast<int64_t>(whole));
  duration->set_nanos(static_cast<int32_t>(1e9 * (seconds - whole)));
}

double NormalOf(std::mt19937_64& random) {
  return std::normal_distribution<double>()(random);
}

// Rows and bytes that each rank needs at most, by the true numbers; written
// independently of calibration's own.
struct TrueRun {
  double seconds = 0;
  std::vector<double> bytes;
  std::vector<double> attention;
  std::vector<double> waited;
};

TrueRun RunTruly(const Job& job, const Plan& plan) {
  const CostModel cost(job);
  StepClock clock(job, cost);
  const auto ranks = static_cast<size_t>(job.pool().ranks());
  TrueRun run = {.bytes = std::vector<double>(ranks),
                 .attention = std::vector<double>(ranks),
                 .waited = std::vector<double>(ranks)};
  const auto static_bytes = static_cast<double>(job.spec().memory.static_bytes);
  for (const MicroBatchPlan& micro_batch : plan.micro_batches) {
    clock.Run(micro_batch.placements);
    for (size_t r = 0; r < ranks; ++r) {
      const RankLoad& load = clock.loads()[r];
      run.bytes[r] = std::max(
          run.bytes[r], static_bytes + job.bytes_per_token() *
                                           static_cast<double>(load.tokens));
      run.attention[r] += load.local.attention + load.sharded.attention;
      const double hidden = job.cost().overlap_scope == OverlapScope::kLayer
                                ? load.local.total()
                                : load.local.attention;
      run.waited[r] += std::max(0.0, load.exchange - hidden);
    }
  }
  run.seconds = clock.seconds();
  return run;
}

}  // namespace

v1::JobSpec TrueSpec(int dp_size, int cp_size) {
  v1::JobSpec spec;
  spec.mutable_model()->set_hidden_size(896);
  spec.mutable_model()->set_layer_count(24);
  spec.mutable_model()->set_attention_head_count(14);
  spec.mutable_model()->set_kv_head_count(2);
  spec.mutable_parallelism()->set_dp_size(dp_size);
  spec.mutable_parallelism()->set_cp_size(cp_size);
  spec.mutable_memory()->set_device_bytes(80'000'000'000);
  spec.mutable_memory()->set_static_bytes(16'000'000'000);
  spec.mutable_memory()->set_bytes_per_token(1.4e6);
  spec.mutable_cost()->set_seconds_per_flop(5e-15);
  spec.mutable_cost()->set_seconds_per_micro_batch(0.02);
  v1::LinkCost* link = spec.mutable_cost()->mutable_intra_node();
  link->set_seconds_per_collective(8e-5);
  link->set_seconds_per_byte(2.5e-11);
  spec.mutable_optimizer()->set_search_steps(200);
  return spec;
}

v1::JobSpec WrongSpec(const v1::JobSpec& truth, const Wrong& wrong) {
  v1::JobSpec spec = truth;
  v1::CostSpec* cost = spec.mutable_cost();
  cost->set_seconds_per_flop(wrong.seconds_per_flop * cost->seconds_per_flop());
  cost->set_seconds_per_micro_batch(wrong.overhead *
                                    cost->seconds_per_micro_batch());
  v1::LinkCost* link = cost->mutable_intra_node();
  link->set_seconds_per_collective(wrong.link * link->seconds_per_collective());
  link->set_seconds_per_byte(wrong.link * link->seconds_per_byte());
  v1::MemorySpec* memory = spec.mutable_memory();
  memory->set_bytes_per_token(wrong.bytes_per_token *
                              memory->bytes_per_token());
  memory->set_static_bytes(static_cast<int64_t>(
      wrong.static_bytes * static_cast<double>(memory->static_bytes())));
  return spec;
}

Job CalibratedJob(const v1::JobSpec& spec, const v1::Calibration& record) {
  absl::StatusOr<Job> job = JobFromProto(ApplyCalibration(spec, record));
  if (!job.ok()) throw std::runtime_error(std::string(job.status().message()));
  return *std::move(job);
}

SimulatedJob::SimulatedJob(v1::JobSpec spec, v1::JobSpec truth, uint64_t seed)
    : spec_(std::move(spec)),
      truth_(std::move(truth)),
      true_job_(CalibratedJob(truth_, {})),
      random_(seed) {
  calibration_.set_cause(v1::CALIBRATION_CAUSE_REGISTERED);
  epochs_.push_back(calibration_);
}

int64_t SimulatedJob::bucket() const {
  return CalibratedJob(spec_, calibration_).bucket_size();
}

// The lowest rank that runs out of memory, if one does; else every rank's
// report.
std::optional<int32_t> SimulatedJob::Run(const Plan& plan,
                                         std::vector<v1::StepReport>* reports) {
  const TrueRun run = RunTruly(true_job_, plan);
  const auto device = static_cast<double>(truth_.memory().device_bytes());
  const bool outlier =
      std::uniform_real_distribution<double>()(random_) < outliers_;
  const double slow =
      outlier ? std::uniform_real_distribution<double>(1.5, 3)(random_) : 1;
  const double measured =
      run.seconds * slow * std::exp(noise_ * NormalOf(random_));
  std::optional<int32_t> out_of_memory;
  for (size_t r = 0; r < run.bytes.size(); ++r) {
    const double bytes = run.bytes[r] * std::exp(0.01 * NormalOf(random_));
    if (bytes > device && !out_of_memory) {
      out_of_memory = static_cast<int32_t>(r);
    }
    v1::StepReport report;
    report.set_step(plan.key.step);
    report.set_attempt(plan.key.attempt);
    report.set_rank(static_cast<int32_t>(r));
    report.set_outcome(v1::STEP_OUTCOME_OK);
    SetSeconds(measured * std::exp(0.002 * NormalOf(random_)),
               report.mutable_step_time());
    if (measures_.peaks) {
      report.set_peak_bytes(static_cast<int64_t>(std::min(bytes, device)));
    }
    if (measures_.parts) {
      SetSeconds(run.attention[r], report.mutable_attention_time());
      SetSeconds(run.waited[r], report.mutable_exchange_time());
    }
    reports->push_back(report);
  }
  if (!out_of_memory && !outlier) {
    errors_.push_back(std::abs(plan.summary.predicted_seconds / measured - 1));
  }
  return out_of_memory;
}

v1::Calibration SimulatedJob::Advance(v1::Calibration next) {
  epochs_.push_back(next);
  return next;
}

void SimulatedJob::RunStep(const std::vector<int64_t>& lengths) {
  if (EndsStretch(step_ - 1, step_)) {
    CalibrationInput input = {.spec = spec_,
                              .standing = calibration_,
                              .steps = {steps_.begin(), steps_.end()}};
    if (const auto next = Refit(input)) calibration_ = Advance(*next);
  }
  for (int32_t attempt = 0; attempt < 8; ++attempt) {
    if (const auto next =
            CalibrateForBatch(spec_, calibration_, step_,
                              policy_.value_or(Policy::kOptimized), lengths)) {
      calibration_ = Advance(*next);
    }
    absl::StatusOr<Plan> plan =
        MakePlan(CalibratedJob(spec_, calibration_), lengths,
                 {.key = {.job = "sim", .step = step_, .attempt = attempt},
                  .policy = policy_,
                  .calibration_epoch = calibration_.epoch()});
    if (!plan.ok()) {
      throw std::runtime_error(std::string(plan.status().message()));
    }
    std::vector<v1::StepReport> reports;
    const std::optional<int32_t> rank = Run(*plan, &reports);
    if (!rank) {
      if (tamper_) tamper_(&reports);
      steps_.push_back({.plan = *std::move(plan), .reports = reports});
      if (steps_.size() > calibration::kWindowSteps) steps_.pop_front();
      ++step_;
      return;
    }
    ooms_.push_back(step_);
    v1::StepReport report = reports[static_cast<size_t>(*rank)];
    report.set_outcome(v1::STEP_OUTCOME_OUT_OF_MEMORY);
    CalibrationInput input = {.spec = spec_,
                              .standing = calibration_,
                              .steps = {steps_.begin(), steps_.end()}};
    input.steps.push_back({.plan = *plan, .reports = {report}});
    const absl::StatusOr<v1::Calibration> next =
        CalibrateOutOfMemory(input, *plan, *rank);
    if (!next.ok()) {
      throw std::runtime_error(std::string(next.status().message()));
    }
    calibration_ = Advance(*next);
  }
  throw std::runtime_error("8 attempts ran out of memory");
}

void SimulatedJob::RunSteps(int count, int64_t sequences, int64_t longest) {
  for (int i = 0; i < count; ++i) {
    std::vector<int64_t> lengths;
    for (int64_t k = 0; k < sequences; ++k) {
      const double tokens = 900 * std::exp(1.4 * NormalOf(random_));
      lengths.push_back(
          std::clamp<int64_t>(static_cast<int64_t>(tokens), 16, longest));
    }
    lengths[0] =
        std::uniform_int_distribution<int64_t>(longest / 4, longest)(random_);
    RunStep(lengths);
  }
}

double SimulatedJob::MeanError(size_t count) const {
  const size_t used = std::min(count, errors_.size());
  double sum = 0;
  for (size_t i = errors_.size() - used; i < errors_.size(); ++i) {
    sum += errors_[i];
  }
  return sum / static_cast<double>(used);
}

}  // namespace skrull::testing
