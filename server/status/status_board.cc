#include "skrull/server/status/status_board.h"

#include <numeric>
#include <utility>

#include "google/protobuf/util/time_util.h"
#include "skrull/server/convert.h"
#include "skrull/server/status/rank_load.h"

namespace skrull {
namespace {

using google::protobuf::util::TimeUtil;

v1::PlanStatus StatusOfPlan(const Job& job, std::span<const int64_t> lengths,
                            const Plan& plan) {
  v1::PlanStatus status;
  status.set_job(plan.key.job);
  status.set_step(plan.key.step);
  status.set_attempt(plan.key.attempt);
  status.set_policy(PolicyToProto(plan.policy));
  status.set_sequence_count(std::ssize(lengths));
  status.set_token_count(
      std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
  const PlanSummary& summary = plan.summary;
  status.set_sharded_token_count(summary.sharded_token_count);
  status.set_micro_batch_count(summary.micro_batch_count);
  status.set_predicted_seconds(summary.predicted_seconds);
  status.set_lower_bound_seconds(summary.lower_bound_seconds);
  status.set_rank_imbalance(summary.rank_imbalance);
  status.set_dp_imbalance(summary.dp_imbalance);
  status.set_roll_back_count(summary.roll_back_count);
  const std::vector<float> loads = RankLoads(job, plan, StatusBoard::kMaxRanks);
  status.mutable_rank_load()->Add(loads.begin(), loads.end());
  return status;
}

}  // namespace

void StatusBoard::AddPlan(uint64_t job_id, const Job& job,
                          std::span<const int64_t> lengths, const Plan& plan,
                          double planning_seconds) {
  auto status =
      std::make_shared<v1::PlanStatus>(StatusOfPlan(job, lengths, plan));
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
      clock_->Now().time_since_epoch());
  *status->mutable_time() = TimeUtil::MicrosecondsToTimestamp(now.count());
  *status->mutable_planning_time() = TimeUtil::NanosecondsToDuration(
      static_cast<int64_t>(planning_seconds * 1e9));

  MutexLock lock(&mutex_);
  JobActivity& activity = Touch(job_id, plan.key.job);
  ++activity.plan_count;
  activity.last_plan = status;
  activity.calibration_epoch = plan.calibration_epoch;
  activity.bucket_size_tokens = job.bucket_size();
  plans_.push_front({.job_id = job_id, .plan = std::move(status)});
  if (std::ssize(plans_) > limits_.max_plans) plans_.pop_back();
}

void StatusBoard::AddReport(uint64_t job_id, const std::string& name,
                            v1::StepOutcome outcome) {
  MutexLock lock(&mutex_);
  JobActivity& activity = Touch(job_id, name);
  ++activity.report_count;
  if (outcome == v1::STEP_OUTCOME_OUT_OF_MEMORY) {
    ++activity.out_of_memory_count;
  }
}

void StatusBoard::Forget(uint64_t job_id) {
  MutexLock lock(&mutex_);
  const auto it = by_id_.find(job_id);
  if (it != by_id_.end()) {
    jobs_.erase(it->second);
    by_id_.erase(it);
  }
  std::erase_if(plans_,
                [&](const PlanEntry& entry) { return entry.job_id == job_id; });
}

std::vector<StatusBoard::JobActivity> StatusBoard::Jobs() const {
  MutexLock lock(&mutex_);
  return {jobs_.begin(), jobs_.end()};
}

std::vector<StatusBoard::PlanEntry> StatusBoard::Plans() const {
  MutexLock lock(&mutex_);
  return {plans_.begin(), plans_.end()};
}

StatusBoard::JobActivity& StatusBoard::Touch(uint64_t job_id,
                                             const std::string& name) {
  const auto [it, inserted] = by_id_.try_emplace(job_id);
  if (inserted) {
    jobs_.push_front({.job_id = job_id, .name = name});
    it->second = jobs_.begin();
  } else {
    jobs_.splice(jobs_.begin(), jobs_, it->second);
  }
  if (std::ssize(jobs_) > limits_.max_jobs) {
    by_id_.erase(jobs_.back().job_id);
    jobs_.pop_back();
  }
  JobActivity& activity = jobs_.front();
  activity.last_active = clock_->MonotonicNow();
  return activity;
}

}  // namespace skrull
