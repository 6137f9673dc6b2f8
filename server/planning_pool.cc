#include "skrull/server/planning_pool.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "skrull/planner/error.h"

namespace skrull {
namespace {

double SecondsBetween(std::chrono::steady_clock::time_point start,
                      std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace

PlanningPool::PlanningPool(const PlanningLimits& limits, const Clock* clock,
                           Metrics* metrics)
    : limits_(limits),
      clock_(clock),
      metrics_(metrics),
      workers_("planning", limits.threads, limits.max_queued, clock) {}

bool PlanningPool::Submit(const Flight& flight) {
  Landings displaced;
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    flight->waiting_callers = std::ssize(flight->callers);
    for (const auto& caller : flight->callers) caller->flight_ = flight;
    if (Join(flight)) return true;
    status = Admit(*flight, &displaced);
    if (status.ok()) status = Enqueue(flight);
  }
  for (const auto& [victim, why] : displaced) Land(victim, why);
  if (status.ok()) return true;
  // It was never in here, and is the caller's alone.
  for (const auto& caller : flight->callers) caller->Complete(status);
  return false;
}

void PlanningPool::Forget(const std::shared_ptr<PlanCaller>& caller) {
  Flight left;
  {
    MutexLock lock(&mutex_);
    const Flight flight = caller->flight_.lock();
    caller->flight_.reset();
    if (flight == nullptr || --flight->waiting_callers > 0 || !flight->queued) {
      return;
    }
    RemoveQueued(*flight);
    left = flight;
  }
  metrics_->CountDropped();
  Land(left,
       MakeError({.reason = ErrorReason::kCancelled}, "the caller went away"));
}

bool PlanningPool::Join(const Flight& flight) {
  const std::string& key = flight->task.key;
  if (key.empty()) return false;
  const auto it = flights_.find(key);
  if (it == flights_.end()) return false;
  PlanFlight& first = *it->second;
  for (auto& caller : flight->callers) {
    caller->flight_ = it->second;
    first.callers.push_back(std::move(caller));
    metrics_->CountCoalesced();
  }
  first.waiting_callers += flight->waiting_callers;
  flight->callers.clear();
  return true;
}

absl::Status PlanningPool::Admit(const PlanFlight& flight,
                                 Landings* displaced) {
  absl::Status status = CheckQuota(flight);
  if (!status.ok()) return status;
  status = CheckWait(flight);
  if (!status.ok()) return status;
  if (MakeRoom(flight, displaced)) return absl::OkStatus();
  const bool by_count = queue_.size() >= limits_.max_queued;
  return FullError(
      by_count ? absl::StrCat(limits_.max_queued, " requests wait already")
               : absl::StrCat("the requests that wait hold ", queue_.bytes(),
                              " bytes of ", limits_.max_queued_bytes),
      flight.share);
}

absl::Status PlanningPool::CheckQuota(const PlanFlight& flight) {
  if (limits_.max_client_plans == 0) return absl::OkStatus();
  const auto it = in_progress_.find(flight.client);
  if (it == in_progress_.end() || it->second < limits_.max_client_plans) {
    return absl::OkStatus();
  }
  return MakeError({.reason = ErrorReason::kQuotaExceeded,
                    .limit = limits_.max_client_plans,
                    .retry_after_seconds = RetrySeconds(flight.share)},
                   absl::StrCat("this client has ", it->second,
                                " batches in progress, its quota is ",
                                limits_.max_client_plans));
}

absl::Status PlanningPool::CheckWait(const PlanFlight& flight) {
  if (queue_.size(flight.share) == 0) return absl::OkStatus();
  const double wait =
      queue_.SecondsAhead(flight.share) / static_cast<double>(limits_.threads);
  const double longest = std::max(limits_.max_queue_seconds,
                                  kPatience * queue_.ExpectedSeconds(flight));
  if (wait <= longest) return absl::OkStatus();
  return FullError(
      absl::StrFormat("a batch would wait for about %.3g seconds", wait),
      flight.share);
}

bool PlanningPool::MakeRoom(const PlanFlight& flight, Landings* displaced) {
  const bool too_many = queue_.size() >= limits_.max_queued;
  const int64_t excess =
      queue_.bytes() + flight.bytes - limits_.max_queued_bytes;
  // Alone, a batch is taken whatever it holds.
  if ((!too_many && excess <= 0) || queue_.size() == 0) return true;
  const std::string share =
      too_many ? queue_.LongestShare() : queue_.LargestShare();
  if (too_many && queue_.size(share) <= queue_.size(flight.share) + 1) {
    return false;
  }
  if (excess > 0 && queue_.bytes(share) - excess <
                        queue_.bytes(flight.share) + flight.bytes) {
    return false;
  }
  const int64_t bytes_to_keep = queue_.bytes() - std::max<int64_t>(excess, 0);
  while (queue_.size() >= limits_.max_queued ||
         queue_.bytes() > bytes_to_keep) {
    const Flight victim = queue_.Newest(share);
    RemoveQueued(*victim);
    displaced->emplace_back(
        victim,
        FullError("the turn of another job came before this batch's", share));
  }
  return true;
}

absl::Status PlanningPool::Enqueue(const Flight& flight) {
  // The queue may be shorter than what is owed: flights left it otherwise.
  if (owed_ <= queue_.size()) {
    const absl::Status status =
        workers_.Submit([this](const absl::Status& run) { RunNext(run); });
    if (!status.ok()) return status;
    ++owed_;
  }
  flight->queued_at = clock_->MonotonicNow();
  queue_.Push(flight);
  metrics_->AddQueueDepth(1);
  if (!flight->task.key.empty()) flights_.emplace(flight->task.key, flight);
  ++in_progress_[flight->client];
  return absl::OkStatus();
}

void PlanningPool::RemoveQueued(const PlanFlight& flight) {
  queue_.Remove(flight);
  flights_.erase(flight.task.key);
  metrics_->AddQueueDepth(-1);
}

absl::Status PlanningPool::FullError(const std::string& what,
                                     const std::string& share) {
  return MakeError({.reason = ErrorReason::kQueueFull,
                    .limit = limits_.max_queued,
                    .retry_after_seconds = RetrySeconds(share)},
                   "the planning queue is full: " + what);
}

double PlanningPool::RetrySeconds(const std::string& share) {
  // When half of what is ahead now is done.
  const double seconds =
      0.5 * queue_.SecondsAhead(share) / static_cast<double>(limits_.threads);
  return std::clamp(seconds, 0.01, 10.0);
}

void PlanningPool::RunNext(const absl::Status& status) {
  Flight flight;
  {
    MutexLock lock(&mutex_);
    --owed_;
    flight = queue_.Pop();
    if (flight == nullptr) return;  // it left the queue otherwise
    metrics_->AddQueueDepth(-1);
  }
  const auto start = clock_->MonotonicNow();
  metrics_->ObserveQueueWait(SecondsBetween(flight->queued_at, start));
  metrics_->StartPlanning();
  const bool planned = Run(flight, status);
  const double spent = SecondsBetween(start, clock_->MonotonicNow());
  metrics_->EndPlanning(spent);
  MutexLock lock(&mutex_);
  queue_.Done(*flight, spent, planned);
}

bool PlanningPool::Run(const Flight& flight, const absl::Status& status) {
  if (!status.ok()) {
    metrics_->CountDropped();
    Land(flight, status);
    return false;
  }
  if (!Wanted(*flight)) {
    metrics_->CountDropped();
    Land(flight,
         MakeError({.reason = ErrorReason::kDeadlineExceeded},
                   "the deadline passed before the batch could be planned"));
    return false;
  }
  // Memory can run out on a large batch; that ends the request, not the daemon.
  PlanOutcome result = absl::UnknownError("");
  try {
    if (flight->read != nullptr) {
      absl::StatusOr<PlanTask> task = flight->read();
      flight->read = nullptr;  // with the bytes it holds
      if (!task.ok()) {
        Land(flight, task.status());
        return false;
      }
      if (Resume(flight, *std::move(task))) return false;
    }
    result = flight->task.plan();
  } catch (const std::exception& exception) {
    result = MakeError({.reason = ErrorReason::kInternal},
                       std::string("planning failed: ") + exception.what());
  }
  Land(flight, result);
  return true;
}

bool PlanningPool::Resume(const Flight& flight, PlanTask task) {
  MutexLock lock(&mutex_);
  flight->task = std::move(task);
  if (Join(flight)) {
    Leave(flight);
    return true;
  }
  if (!flight->task.key.empty()) flights_.emplace(flight->task.key, flight);
  return false;
}

bool PlanningPool::Wanted(const PlanFlight& flight) {
  const auto now = clock_->MonotonicNow();
  MutexLock lock(&mutex_);
  const bool wanted = std::any_of(
      flight.callers.begin(), flight.callers.end(), [&](const auto& caller) {
        return !caller->completed() && now < caller->deadline();
      });
  // No one may join it from here on.
  if (!wanted) flights_.erase(flight.task.key);
  return wanted;
}

std::vector<std::shared_ptr<PlanCaller>> PlanningPool::Leave(
    const Flight& flight) {
  const auto it = flights_.find(flight->task.key);
  if (it != flights_.end() && it->second == flight) flights_.erase(it);
  const auto client = in_progress_.find(flight->client);
  if (client != in_progress_.end() && --client->second == 0) {
    in_progress_.erase(client);
  }
  return std::exchange(flight->callers, {});
}

void PlanningPool::Land(const Flight& flight, const PlanOutcome& result) {
  std::vector<std::shared_ptr<PlanCaller>> callers;
  {
    MutexLock lock(&mutex_);
    callers = Leave(flight);
  }
  for (const auto& caller : callers) caller->Complete(result);
}

}  // namespace skrull
