// The threads that plan, with their bounded queue.
//
// Requests that are identical and in progress at the same time are planned
// once; every caller gets the one result. A request is planned only if, when
// its turn comes, at least one of its callers still waits and has not run out
// of time; otherwise it is dropped, and counted.
//
// Thread-safe.
#ifndef SKRULL_SERVER_PLANNING_POOL_H_
#define SKRULL_SERVER_PLANNING_POOL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "skrull/server/clock.h"
#include "skrull/server/metrics.h"
#include "skrull/server/mutex.h"
#include "skrull/server/plan_caller.h"
#include "skrull/server/worker_pool.h"

namespace skrull {

class PlanningPool {
 public:
  // REQUIRES: threads >= 1, max_queued >= 1. `clock` and `metrics` must outlive
  // the pool.
  PlanningPool(int64_t threads, int64_t max_queued, const Clock* clock,
               Metrics* metrics);

  // Answers `caller` with what `plan` returns on a thread of the pool, or with
  // what an earlier request of the same `key` that is still in progress
  // returns; an empty key is never the same. When the request cannot be queued
  // (kQueueFull with a hint when to try again, kDraining), or is dropped
  // (kDeadlineExceeded), that is the answer; it may come before this returns.
  void Submit(const std::string& key, std::shared_ptr<PlanCaller> caller,
              std::function<PlanOutcome()> plan) SKRULL_EXCLUDES(mutex_);

  // Answers requests that are not being planned yet, and those to come, with
  // kDraining. Idempotent.
  void Close() { workers_.Close(); }

 private:
  struct Flight {
    std::string key;
    std::function<PlanOutcome()> plan;
    std::chrono::steady_clock::time_point queued;  // when
    std::vector<std::shared_ptr<PlanCaller>> callers;
  };

  void Run(const std::shared_ptr<Flight>& flight, const absl::Status& status)
      SKRULL_EXCLUDES(mutex_);
  // True if some caller waits for it. Else closes the flight to new callers.
  bool Wanted(const std::shared_ptr<Flight>& flight) SKRULL_EXCLUDES(mutex_);
  void Land(const std::shared_ptr<Flight>& flight, const PlanOutcome& result)
      SKRULL_EXCLUDES(mutex_);

  const Clock* const clock_;
  Metrics* const metrics_;

  Mutex mutex_;
  // Those with a key that new callers may join. Flights' callers are guarded by
  // mutex_, too, as long as the flight is in here.
  std::unordered_map<std::string, std::shared_ptr<Flight>> flights_
      SKRULL_GUARDED_BY(mutex_);

  WorkerPool workers_;  // last: its threads use the rest
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNING_POOL_H_
