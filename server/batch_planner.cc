#include "skrull/server/batch_planner.h"

#include <chrono>
#include <string>
#include <utility>

#include "skrull/planner/error.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

std::string Describe(const PlanKey& key) {
  return "job " + key.job + ", step " + std::to_string(key.step) +
         ", attempt " + std::to_string(key.attempt);
}

// Observes each phase as it ends.
class PhaseTimer {
 public:
  PhaseTimer(const Clock* clock, Metrics* metrics)
      : clock_(clock), metrics_(metrics), start_(clock->MonotonicNow()) {}

  // Ends `phase`; its seconds.
  double End(PlanningPhase phase) {
    const auto now = clock_->MonotonicNow();
    const std::chrono::duration<double> spent = now - start_;
    metrics_->ObservePhase(phase, spent.count());
    start_ = now;
    return spent.count();
  }

 private:
  const Clock* const clock_;
  Metrics* const metrics_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

PlanOutcome BatchPlanner::Answer(const BatchRequest& request) const {
  if (request.commit) {
    absl::StatusOr<std::shared_ptr<const CommittedPlan>> committed =
        FindCommitted(request.key, request.registered->record().generation);
    if (!committed.ok()) return committed.status();
    if (*committed != nullptr) {
      return Standing(request, *std::move(committed));
    }
  }
  PlanOutcome answer = MakeAndCheck(request);
  if (!answer.ok() || !request.commit) return answer;
  return Commit(request, *std::move(answer));
}

PlanOutcome BatchPlanner::Standing(const BatchRequest& request,
                                   std::shared_ptr<const CommittedPlan> plan) {
  const std::string& digest = plan->record().request_digest;
  if (digest != request.digest) {
    return MakeError({.reason = ErrorReason::kPlanConflict},
                     Describe(request.key) +
                         " is committed for another request: lengths and "
                         "policy have digest " +
                         digest + ", this request's have " + request.digest);
  }
  return PlanAnswer{.plan = std::move(plan),
                    .planning_seconds = std::nullopt,
                    .committed = true};
}

absl::StatusOr<std::shared_ptr<const CommittedPlan>>
BatchPlanner::FindCommitted(const PlanKey& key, int64_t generation) const {
  absl::StatusOr<std::optional<PlanRecord>> record =
      store_->Find(key, generation);
  if (!record.ok()) return record.status();
  if (!record->has_value()) return nullptr;
  absl::StatusOr<std::shared_ptr<const CommittedPlan>> plan =
      CommittedPlan::Decode(**std::move(record));
  if (!plan.ok()) {
    logger_->Error("stored_plan_unreadable",
                   {{"problem", std::string(plan.status().message())}});
  }
  return plan;
}

PlanOutcome BatchPlanner::MakeAndCheck(const BatchRequest& request) const {
  PhaseTimer timer(clock_, metrics_);
  absl::StatusOr<Plan> plan =
      MakePlan(request.job(), request.lengths,
               {.key = request.key,
                .policy = request.policy,
                .calibration_epoch = request.calibration_epoch()});
  if (!plan.ok()) return plan.status();
  double seconds = timer.End(PlanningPhase::kPlan);

  const absl::Status checked = CheckPlan(request.job(), request.lengths, *plan);
  seconds += timer.End(PlanningPhase::kCheck);
  if (!checked.ok()) {
    metrics_->CountCheckerRejection();
    logger_->Error("checker_refused_plan",
                   {{"job", request.key.job},
                    {"step", request.key.step},
                    {"attempt", request.key.attempt},
                    {"policy", PolicyName(request.policy)},
                    {"request_digest", request.digest},
                    {"problem", std::string(checked.message())}});
    return MakeError({.reason = ErrorReason::kInternal},
                     "a bug of this daemon: its own checker refused the plan "
                     "for " +
                         Describe(request.key) + ": " +
                         std::string(checked.message()));
  }

  EncodedPlan encoded = EncodePlan(*plan);
  PlanRecord record{.key = request.key,
                    .request_digest = request.digest,
                    .plan = std::move(encoded.bytes)};
  if (request.registered != nullptr) {
    record.generation = request.registered->record().generation;
    record.birth = request.registered->record().birth;
  }
  auto made = CommittedPlan::Make(*std::move(plan), std::move(encoded.digest),
                                  std::move(record));
  timer.End(PlanningPhase::kEncode);
  metrics_->CountPlan(request.job(), made->plan());
  return PlanAnswer{
      .plan = std::move(made), .planning_seconds = seconds, .committed = false};
}

PlanOutcome BatchPlanner::Commit(const BatchRequest& request,
                                 PlanAnswer answer) const {
  PhaseTimer timer(clock_, metrics_);
  absl::StatusOr<PlanRecord> stands = PlanRecord();
  const absl::Status status = request.registered->Write([&] {
    stands = store_->Commit(answer.plan->record(), kept_steps_);
    return stands.status();
  });
  if (!status.ok()) return status;
  timer.End(PlanningPhase::kCommit);
  if (*stands == answer.plan->record()) {
    answer.committed = true;
    return answer;
  }
  // Another request for the key was faster.
  absl::StatusOr<std::shared_ptr<const CommittedPlan>> plan =
      CommittedPlan::Decode(*std::move(stands));
  if (!plan.ok()) return plan.status();
  return Standing(request, *std::move(plan));
}

}  // namespace skrull
