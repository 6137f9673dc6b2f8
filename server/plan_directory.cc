#include "skrull/server/plan_directory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "skrull/planner/error.h"

namespace skrull {
namespace {

// Calls that one task answers after a commit.
constexpr size_t kAnswersPerTask = 64;

absl::Status DrainingError() {
  return MakeError({.reason = ErrorReason::kDraining},
                   "the daemon is shutting down");
}

}  // namespace

PlanDirectory::PlanDirectory(Limits limits, Executor executor,
                             const Clock* clock, Metrics* metrics)
    : limits_(limits),
      executor_(std::move(executor)),
      metrics_(metrics),
      alarm_(clock, [this](Alarm::Time now) { return Expire(now); }) {}

std::shared_ptr<const CommittedPlan> PlanDirectory::Find(const StepKey& key) {
  MutexLock lock(&mutex_);
  const auto it = cached_.find(key);
  if (it == cached_.end()) return nullptr;
  ages_.splice(ages_.end(), ages_, it->second.age);
  return it->second.plan;
}

void PlanDirectory::Publish(const StepKey& key,
                            std::shared_ptr<const CommittedPlan> plan) {
  Waits waits;
  {
    MutexLock lock(&mutex_);
    Insert(key, plan);
    waits = TakeAll(key);
  }
  if (waits.empty()) executor_([plan] { plan->Prepare(); });
  for (size_t begin = 0; begin < waits.size(); begin += kAnswersPerTask) {
    const size_t end = std::min(waits.size(), begin + kAnswersPerTask);
    Waits part(waits.begin() + static_cast<ptrdiff_t>(begin),
               waits.begin() + static_cast<ptrdiff_t>(end));
    executor_([part = std::move(part), plan] {
      for (const auto& wait : part) wait->done_(plan);
    });
  }
}

bool PlanDirectory::Wait(const std::shared_ptr<PlanWait>& wait) {
  Result answer = std::shared_ptr<const CommittedPlan>();
  {
    MutexLock lock(&mutex_);
    const auto cached = cached_.find(wait->key_);
    const absl::Status ended = wait->job_->ended();
    if (wait->cancelled_) {
      answer = MakeError({.reason = ErrorReason::kCancelled},
                         "the caller went away");
    } else if (draining_) {
      answer = DrainingError();
    } else if (!ended.ok()) {
      answer = ended;
    } else if (cached != cached_.end()) {
      answer = cached->second.plan;
    } else if (static_cast<int64_t>(deadlines_.size()) >= limits_.max_waits) {
      answer = MakeError(
          {.reason = ErrorReason::kLimitExceeded,
           .limit = limits_.max_waits,
           .retry_after_seconds = 1},
          std::to_string(limits_.max_waits) + " calls wait for plans already");
    } else {
      Waits& waits = waits_[wait->key_];
      wait->position_ = waits.size();
      waits.push_back(wait);
      wait->timer_ = deadlines_.emplace(wait->deadline_, wait);
      alarm_.Set(wait->deadline_);
      metrics_->SetRankWaits(static_cast<int64_t>(deadlines_.size()));
      return waits.size() == 1;
    }
  }
  wait->done_(answer);
  return false;
}

void PlanDirectory::Cancel(const std::shared_ptr<PlanWait>& wait) {
  wait->cancelled_ = true;
  {
    MutexLock lock(&mutex_);
    if (!TakeOne(wait)) return;
  }
  wait->done_(
      MakeError({.reason = ErrorReason::kCancelled}, "the caller went away"));
}

void PlanDirectory::Fail(const StepKey& key, const absl::Status& status) {
  Waits waits;
  {
    MutexLock lock(&mutex_);
    waits = TakeAll(key);
  }
  for (const auto& wait : waits) wait->done_(status);
}

void PlanDirectory::EndJob(const RegisteredJob& job) {
  const StepKey first{.job_id = job.id(), .step = 0, .attempt = 0};
  Waits waits;
  {
    MutexLock lock(&mutex_);
    for (auto it = cached_.lower_bound(first);
         it != cached_.end() && it->first.job_id == job.id();) {
      Evict(it++);
    }
    for (auto it = waits_.lower_bound(first);
         it != waits_.end() && it->first.job_id == job.id();
         it = waits_.lower_bound(first)) {
      const Waits of_step = TakeAll(it->first);
      waits.insert(waits.end(), of_step.begin(), of_step.end());
    }
  }
  const absl::Status ended = job.ended();
  for (const auto& wait : waits) wait->done_(ended);
}

void PlanDirectory::Drain() {
  Waits waits;
  {
    MutexLock lock(&mutex_);
    draining_ = true;
    for (const auto& [deadline, wait] : deadlines_) waits.push_back(wait);
    deadlines_.clear();
    waits_.clear();
    metrics_->SetRankWaits(0);
  }
  for (const auto& wait : waits) wait->done_(DrainingError());
}

void PlanDirectory::Insert(const StepKey& key,
                           std::shared_ptr<const CommittedPlan> plan) {
  const auto [it, inserted] = cached_.try_emplace(key);
  if (!inserted) return;  // a key has one plan
  cached_bytes_ += plan->size_bytes();
  it->second = {std::move(plan), ages_.insert(ages_.end(), key)};
  // The newest stays, however large.
  while (cached_bytes_ > limits_.max_cached_bytes && cached_.size() > 1) {
    Evict(cached_.find(ages_.front()));
  }
  metrics_->SetCachedPlans(std::ssize(cached_), cached_bytes_);
}

void PlanDirectory::Evict(std::map<StepKey, Cached>::iterator it) {
  cached_bytes_ -= it->second.plan->size_bytes();
  ages_.erase(it->second.age);
  cached_.erase(it);
  metrics_->SetCachedPlans(std::ssize(cached_), cached_bytes_);
}

PlanDirectory::Waits PlanDirectory::TakeAll(const StepKey& key) {
  Waits taken;
  const auto it = waits_.find(key);
  if (it == waits_.end()) return taken;
  taken = std::move(it->second);
  waits_.erase(it);
  for (const auto& wait : taken) deadlines_.erase(wait->timer_);
  metrics_->SetRankWaits(static_cast<int64_t>(deadlines_.size()));
  return taken;
}

bool PlanDirectory::TakeOne(const std::shared_ptr<PlanWait>& wait) {
  const auto it = waits_.find(wait->key_);
  if (it == waits_.end()) return false;
  Waits& waits = it->second;
  if (wait->position_ >= waits.size() || waits[wait->position_] != wait) {
    return false;
  }
  waits[wait->position_] = waits.back();
  waits[wait->position_]->position_ = wait->position_;
  waits.pop_back();
  if (waits.empty()) waits_.erase(it);
  deadlines_.erase(wait->timer_);
  metrics_->SetRankWaits(static_cast<int64_t>(deadlines_.size()));
  return true;
}

Alarm::Time PlanDirectory::Expire(Alarm::Time now) {
  Waits expired;
  Alarm::Time next = Alarm::kNever;
  {
    MutexLock lock(&mutex_);
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      const std::shared_ptr<PlanWait> wait = deadlines_.begin()->second;
      TakeOne(wait);
      expired.push_back(wait);
    }
    if (!deadlines_.empty()) next = deadlines_.begin()->first;
  }
  for (const auto& wait : expired) wait->done_(DeadlineError(*wait));
  return next;
}

absl::Status PlanDirectory::DeadlineError(const PlanWait& wait) {
  return MakeError({.reason = ErrorReason::kDeadlineExceeded},
                   "no plan of job " + wait.job_->record().name + ", step " +
                       std::to_string(wait.key_.step) + ", attempt " +
                       std::to_string(wait.key_.attempt) +
                       " was committed before the deadline");
}

}  // namespace skrull
