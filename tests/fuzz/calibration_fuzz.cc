// A job of four ranks whose reporters say what the input says: batches, what
// ranks measured, and which ran out of memory. Whatever they say, every epoch
// is within the bounds of calibration/limits.h, is the same again however the
// reports are ordered, and its job plans.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/planner/error.h"
#include "skrull/planner/planner.h"
#include "skrull/server/calibration/apply.h"
#include "skrull/server/calibration/calibrate.h"
#include "skrull/server/calibration/limits.h"
#include "skrull/server/convert.h"

namespace {

using skrull::calibration::kEpochFactor;
using skrull::calibration::kTotalFactor;
using skrull::calibration::ReportedStep;

constexpr int32_t kRanks = 4;
constexpr size_t kMaxSequences = 12;
constexpr int64_t kLongest = 60'000;  // 4 ranks hold 180,000 tokens
constexpr int kMaxSteps = 64;
constexpr int32_t kMaxAttempts = 4;

[[noreturn]] void Broken(const std::string& what,
                         const skrull::v1::Calibration& epoch) {
  std::fprintf(stderr, "broken promise: %s: %s\n", what.c_str(),
               epoch.ShortDebugString().c_str());
  std::abort();
}

skrull::v1::JobSpec Spec() {
  skrull::v1::JobSpec spec;
  spec.mutable_model()->set_hidden_size(896);
  spec.mutable_model()->set_layer_count(24);
  spec.mutable_model()->set_attention_head_count(14);
  spec.mutable_model()->set_kv_head_count(2);
  spec.mutable_parallelism()->set_dp_size(2);
  spec.mutable_parallelism()->set_cp_size(kRanks / 2);
  spec.mutable_memory()->set_device_bytes(80'000'000'000);
  spec.mutable_memory()->set_static_bytes(16'000'000'000);
  spec.mutable_memory()->set_bytes_per_token(1.4e6);
  spec.mutable_cost()->set_seconds_per_flop(5e-15);
  spec.mutable_cost()->set_seconds_per_micro_batch(0.02);
  spec.mutable_cost()->mutable_intra_node()->set_seconds_per_collective(8e-5);
  spec.mutable_cost()->mutable_intra_node()->set_seconds_per_byte(2.5e-11);
  spec.set_policy(skrull::v1::POLICY_SKRULL);
  return spec;
}

// A job, its epochs, and the steps that its ranks reported.
class Reported {
 public:
  // Of `epoch`; aborts if the spec with its numbers is no job.
  skrull::Job JobOf(const skrull::v1::Calibration& epoch) const {
    auto job = skrull::JobFromProto(skrull::ApplyCalibration(spec_, epoch));
    if (!job.ok()) Broken(std::string(job.status().message()), epoch);
    return *std::move(job);
  }

  absl::StatusOr<skrull::Plan> Plan(const std::vector<int64_t>& lengths,
                                    int32_t attempt) {
    if (auto next = skrull::CalibrateForBatch(
            spec_, epoch_, step_, skrull::Policy::kSkrull, lengths)) {
      Advance(*next);
    }
    return skrull::MakePlan(JobOf(epoch_), lengths,
                            {.key = {"fuzz", step_, attempt},
                             .policy = skrull::Policy::kSkrull,
                             .calibration_epoch = epoch_.epoch()});
  }

  // False if no attempt follows.
  bool RanOut(const skrull::Plan& plan, int32_t rank) {
    const auto next = skrull::CalibrateOutOfMemory(Input(), plan, rank);
    if (!next.ok()) {
      const auto detail = skrull::GetErrorDetail(next.status());
      if (!detail ||
          detail->reason != skrull::ErrorReason::kAttemptsExhausted) {
        Broken(std::string(next.status().message()), epoch_);
      }
      return false;
    }
    Advance(*next);
    return true;
  }

  void Ran(ReportedStep step) {
    steps_.push_back(std::move(step));
    if (steps_.size() > skrull::calibration::kWindowSteps) steps_.pop_front();
    ++step_;
    if (!skrull::EndsStretch(step_ - 1, step_)) return;
    const auto next = skrull::Refit(Input());
    skrull::CalibrationInput turned = Input();
    std::reverse(turned.steps.begin(), turned.steps.end());
    for (ReportedStep& reported : turned.steps) {
      std::reverse(reported.reports.begin(), reported.reports.end());
    }
    const auto again = skrull::Refit(turned);
    if (next.has_value() != again.has_value() ||
        (next &&
         skrull::CanonicalBytes(*next) != skrull::CanonicalBytes(*again))) {
      Broken("an epoch depends on the order of reports", epoch_);
    }
    if (next) Advance(*next);
  }

  int64_t step() const { return step_; }
  void Skip() { ++step_; }

 private:
  skrull::CalibrationInput Input() const {
    return {.spec = spec_,
            .standing = epoch_,
            .steps = {steps_.begin(), steps_.end()}};
  }

  static void Within(const std::string& name, double now, double before,
                     double of_spec, double least,
                     const skrull::v1::Calibration& epoch) {
    const double slack = 1 + 1e-5;  // of rounding to six digits
    if (now > slack * kEpochFactor * std::max(before, least) ||
        now > slack * kTotalFactor * std::max(of_spec, least) ||
        slack * now < before / kEpochFactor ||
        slack * now < of_spec / kTotalFactor) {
      Broken(name + " moved too far", epoch);
    }
  }

  void Advance(const skrull::v1::Calibration& next) {
    if (next.epoch() != epoch_.epoch() + 1) Broken("a gap in epochs", next);
    const skrull::Job now = JobOf(next);
    const skrull::Job before = JobOf(epoch_);
    const skrull::Job first = JobOf({});
    Within("seconds_per_flop", now.cost().seconds_per_flop,
           before.cost().seconds_per_flop, first.cost().seconds_per_flop, 0,
           next);
    Within("seconds_per_micro_batch", now.cost().seconds_per_micro_batch,
           before.cost().seconds_per_micro_batch,
           first.cost().seconds_per_micro_batch,
           skrull::calibration::kLeastOverheadSeconds, next);
    Within("bytes_per_token", now.bytes_per_token(), before.bytes_per_token(),
           first.bytes_per_token(), 0, next);
    Within("link_scale", next.has_link_scale() ? next.link_scale() : 1,
           epoch_.has_link_scale() ? epoch_.link_scale() : 1, 1, 0, next);
    if (now.bucket_size() > first.bucket_size() ||
        skrull::calibration::kBucketFloorShare * now.bucket_size() <
            first.bucket_size()) {
      Broken("a bucket outside its bounds", next);
    }
    epoch_ = next;
  }

  const skrull::v1::JobSpec spec_ = Spec();
  skrull::v1::Calibration epoch_;
  std::deque<ReportedStep> steps_;
  int64_t step_ = 0;
};

void SetDuration(FuzzedDataProvider& input,
                 google::protobuf::Duration* duration) {
  if (input.ConsumeBool()) {  // what real ones say
    duration->set_nanos(input.ConsumeIntegralInRange(0, 999'999'999));
  } else {
    duration->set_seconds(input.ConsumeIntegral<int64_t>());
    duration->set_nanos(input.ConsumeIntegral<int32_t>());
  }
}

skrull::v1::StepReport MakeReport(FuzzedDataProvider& input,
                                  const skrull::Plan& plan, int32_t rank) {
  skrull::v1::StepReport report;
  report.set_step(plan.key.step);
  report.set_attempt(plan.key.attempt);
  report.set_rank(input.ConsumeProbability<float>() < 0.9F
                      ? rank
                      : input.ConsumeIntegral<int32_t>());
  report.set_outcome(input.ConsumeProbability<float>() < 0.9F
                         ? skrull::v1::STEP_OUTCOME_OK
                         : skrull::v1::STEP_OUTCOME_FAILED);
  SetDuration(input, report.mutable_step_time());
  if (input.ConsumeBool()) {
    SetDuration(input, report.mutable_attention_time());
    SetDuration(input, report.mutable_exchange_time());
  }
  if (input.ConsumeBool()) {
    report.set_peak_bytes(input.ConsumeIntegral<int64_t>());
  } else {
    report.set_peak_bytes(
        input.ConsumeIntegralInRange<int64_t>(0, 100'000'000'000));
  }
  return report;
}

// One step: attempts until one does not run out of memory.
void RunStep(FuzzedDataProvider& input, Reported* job) {
  std::vector<int64_t> lengths(
      input.ConsumeIntegralInRange<size_t>(1, kMaxSequences));
  for (int64_t& length : lengths) {
    length = input.ConsumeIntegralInRange<int64_t>(1, kLongest);
  }
  for (int32_t attempt = 0; attempt < kMaxAttempts; ++attempt) {
    absl::StatusOr<skrull::Plan> plan = job->Plan(lengths, attempt);
    if (!plan.ok()) break;  // the bucket shrank below what it needs
    if (input.ConsumeProbability<float>() < 0.1F) {
      const auto rank = input.ConsumeIntegralInRange<int32_t>(-1, kRanks);
      if (!job->RanOut(*plan, rank)) break;
      continue;
    }
    ReportedStep step;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      step.reports.push_back(MakeReport(input, *plan, rank));
    }
    step.plan = *std::move(plan);
    job->Ran(std::move(step));
    return;
  }
  job->Skip();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  Reported job;
  while (input.remaining_bytes() > 0 && job.step() < kMaxSteps) {
    RunStep(input, &job);
  }
  return 0;
}
