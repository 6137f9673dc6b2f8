#include "skrull/server/planning_pool.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "skrull/planner/error.h"

namespace skrull {
namespace {

double SecondsBetween(std::chrono::steady_clock::time_point start,
                      std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace

PlanningPool::PlanningPool(int64_t threads, int64_t max_queued,
                           const Clock* clock, Metrics* metrics)
    : clock_(clock),
      metrics_(metrics),
      workers_("planning", threads, max_queued, clock) {}

void PlanningPool::Submit(const std::string& key,
                          std::shared_ptr<PlanCaller> caller,
                          std::function<PlanOutcome()> plan) {
  auto flight = std::make_shared<Flight>();
  flight->queued = clock_->MonotonicNow();
  if (!key.empty()) {
    MutexLock lock(&mutex_);
    auto [it, inserted] = flights_.try_emplace(key, flight);
    if (!inserted) {
      it->second->callers.push_back(std::move(caller));
      metrics_->CountCoalesced();
      return;
    }
    flight->key = key;
    flight->plan = std::move(plan);
    flight->callers.push_back(std::move(caller));
  } else {
    flight->plan = std::move(plan);
    flight->callers.push_back(std::move(caller));
  }
  metrics_->AddQueueDepth(1);
  const absl::Status status = workers_.Submit(
      [this, flight](const absl::Status& run) { Run(flight, run); });
  if (!status.ok()) {
    metrics_->AddQueueDepth(-1);
    Land(flight, status);
  }
}

void PlanningPool::Run(const std::shared_ptr<Flight>& flight,
                       const absl::Status& status) {
  metrics_->AddQueueDepth(-1);
  const auto start = clock_->MonotonicNow();
  metrics_->ObserveQueueWait(SecondsBetween(flight->queued, start));
  if (!status.ok()) {
    metrics_->CountDropped();
    Land(flight, status);
    return;
  }
  if (!Wanted(flight)) {
    metrics_->CountDropped();
    Land(flight,
         MakeError({.reason = ErrorReason::kDeadlineExceeded},
                   "the deadline passed before the batch could be planned"));
    return;
  }
  metrics_->StartPlanning();
  // Memory can run out on a large batch; that ends the request, not the daemon.
  PlanOutcome result = absl::UnknownError("");
  try {
    result = flight->plan();
  } catch (const std::exception& exception) {
    result = MakeError({.reason = ErrorReason::kInternal},
                       std::string("planning failed: ") + exception.what());
  }
  metrics_->EndPlanning(SecondsBetween(start, clock_->MonotonicNow()));
  Land(flight, result);
}

bool PlanningPool::Wanted(const std::shared_ptr<Flight>& flight) {
  const auto now = clock_->MonotonicNow();
  MutexLock lock(&mutex_);
  const bool wanted = std::any_of(
      flight->callers.begin(), flight->callers.end(), [&](const auto& caller) {
        return !caller->completed() && now < caller->deadline();
      });
  if (!wanted && !flight->key.empty()) flights_.erase(flight->key);
  return wanted;
}

void PlanningPool::Land(const std::shared_ptr<Flight>& flight,
                        const PlanOutcome& result) {
  std::vector<std::shared_ptr<PlanCaller>> callers;
  {
    MutexLock lock(&mutex_);
    const auto it = flights_.find(flight->key);
    if (it != flights_.end() && it->second == flight) flights_.erase(it);
    callers.swap(flight->callers);
  }
  for (const auto& caller : callers) caller->Complete(result);
}

}  // namespace skrull
