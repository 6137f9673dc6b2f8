#include "skrull/client/local_planner.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/client/internal/wire.h"
#include "skrull/planner/error.h"
#include "skrull/planner/planner.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

constexpr int32_t kMaxAttempt = 1000;

// The planner's error as a client shows it; the client's own as it is.
absl::Status AsClientError(const absl::Status& status) {
  if (GetRefusalDetail(status)) return status;
  return client_internal::StatusFromWire(StatusToProto(status));
}

// What the daemon checks of a request beside its lengths.
absl::Status CheckKey(const LocalBatch& batch) {
  if (!batch.job.empty()) {
    absl::Status name = ValidateJobName(batch.job, "job");
    if (!name.ok()) return name;
  }
  if (batch.step < 0) {
    return FieldError("step",
                      absl::StrCat("must be at least 0, is ", batch.step));
  }
  if (batch.attempt < 0 || batch.attempt > kMaxAttempt) {
    return FieldError("attempt", absl::StrCat("must be in 0 .. ", kMaxAttempt,
                                              ", is ", batch.attempt));
  }
  return absl::OkStatus();
}

}  // namespace

class LocalPlanner::Impl {
 public:
  Impl(Job job, int64_t calibration_epoch)
      : job_(std::move(job)), calibration_epoch_(calibration_epoch) {}

  absl::StatusOr<Plan> Make(const LocalBatch& batch) const {
    absl::Status key = CheckKey(batch);
    if (!key.ok()) return key;
    absl::StatusOr<v1::Policy> wire_policy =
        client_internal::PolicyFromName(batch.policy);
    if (!wire_policy.ok()) return wire_policy.status();
    absl::StatusOr<std::optional<Policy>> policy =
        PolicyFromProto(*wire_policy, "policy");
    if (!policy.ok()) return policy.status();
    return MakePlan(job_, batch.lengths,
                    {.key = {.job = batch.job,
                             .step = batch.step,
                             .attempt = batch.attempt},
                     .policy = *policy,
                     .calibration_epoch = calibration_epoch_});
  }

 private:
  const Job job_;
  const int64_t calibration_epoch_;
};

absl::StatusOr<std::unique_ptr<LocalPlanner>> LocalPlanner::Create(
    const std::string& job_spec_text, int64_t calibration_epoch) {
  if (calibration_epoch < 0) {
    return client_internal::InvalidField(
        "calibration_epoch",
        absl::StrCat("must be at least 0, is ", calibration_epoch));
  }
  absl::StatusOr<v1::JobSpec> spec = ParseJobSpecText(job_spec_text);
  if (!spec.ok()) return AsClientError(spec.status());
  absl::StatusOr<Job> job = JobFromProto(*spec);
  if (!job.ok()) return AsClientError(job.status());
  return std::unique_ptr<LocalPlanner>(new LocalPlanner(
      std::make_unique<const Impl>(*std::move(job), calibration_epoch)));
}

LocalPlanner::LocalPlanner(std::unique_ptr<const Impl> impl)
    : impl_(std::move(impl)) {}

LocalPlanner::~LocalPlanner() = default;

absl::StatusOr<PlanResult> LocalPlanner::PlanBatch(
    const LocalBatch& batch) const {
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<Plan> plan = impl_->Make(batch);
  if (!plan.ok()) return AsClientError(plan.status());
  const std::chrono::duration<double> planning =
      std::chrono::steady_clock::now() - start;
  PlanResult result = client_internal::PlanFromWire(PlanToProto(*plan));
  result.planning_seconds = planning.count();
  return result;
}

}  // namespace skrull
