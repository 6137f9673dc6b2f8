// The threads that plan, with their bounded, fair queue.
//
// Requests that are identical and in progress at the same time are planned
// once; every caller gets the one result. A request is planned only if, when
// its turn comes, at least one of its callers still waits and has not run out
// of time; otherwise it is dropped, and counted.
//
// Turns go to shares in the order of a FairQueue: however much one job sends,
// the first batch of another that is not ahead starts after at most one batch
// of each share that waits and those that are being planned. It is refused only
// when the queue is full of others' first batches: when the queue is full, the
// share with the most batches waiting loses one, which need not be the
// caller's. A further batch of a share is also refused, at once, when it is
// expected to wait for too long.
//
// Thread-safe.
#ifndef SKRULL_SERVER_PLANNING_POOL_H_
#define SKRULL_SERVER_PLANNING_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "skrull/server/clock.h"
#include "skrull/server/fair_queue.h"
#include "skrull/server/metrics.h"
#include "skrull/server/mutex.h"
#include "skrull/server/plan_caller.h"
#include "skrull/server/plan_flight.h"
#include "skrull/server/worker_pool.h"

namespace skrull {

// The members of ServerOptions of the same meaning document them.
struct PlanningLimits {
  int64_t threads = 1;        // at least 1
  int64_t max_queued = 1024;  // at least 1
  int64_t max_queued_bytes = int64_t{256} << 20;
  double max_queue_seconds = 1;
  int64_t max_client_plans = 0;  // 0: any number
};

class PlanningPool {
 public:
  // A batch may wait this many times as long as it takes itself, whatever
  // max_queue_seconds is. It is what a stream reads ahead, so that a stream of
  // batches that take seconds is not refused for waiting behind itself.
  static constexpr double kPatience = 8;

  // `clock` and `metrics` must outlive the pool.
  PlanningPool(const PlanningLimits& limits, const Clock* clock,
               Metrics* metrics);

  // Answers the flight's callers with what its task returns on a thread of the
  // pool, or with what an earlier flight of the same key that is still in
  // progress returns. When it cannot be queued (kQueueFull or kQuotaExceeded,
  // with a hint when to try again; kDraining), or is dropped later
  // (kDeadlineExceeded, kQueueFull), that is the answer; it may come before
  // this returns. True if it was queued, or joined an earlier flight.
  bool Submit(const std::shared_ptr<PlanFlight>& flight)
      SKRULL_EXCLUDES(mutex_);

  // To be called when a caller has gone away, after it was completed: a batch
  // that nobody waits for then leaves the queue.
  void Forget(const std::shared_ptr<PlanCaller>& caller)
      SKRULL_EXCLUDES(mutex_);

  // Answers requests that are not being planned yet, and those to come, with
  // kDraining. Idempotent.
  void Close() { workers_.Close(); }

 private:
  using Flight = std::shared_ptr<PlanFlight>;
  // Flights that lost their place, with what their callers are told.
  using Landings = std::vector<std::pair<Flight, absl::Status>>;

  // True if an earlier flight takes over its callers.
  bool Join(const Flight& flight) SKRULL_REQUIRES(mutex_);
  // OK if the flight may be queued; `displaced` then has those that lost their
  // place to it. Else why not, and nothing has changed.
  absl::Status Admit(const PlanFlight& flight, Landings* displaced)
      SKRULL_REQUIRES(mutex_);
  absl::Status CheckQuota(const PlanFlight& flight) SKRULL_REQUIRES(mutex_);
  absl::Status CheckWait(const PlanFlight& flight) SKRULL_REQUIRES(mutex_);
  // Takes the newest flights out of the share with the most until there is room
  // for this one. False, with nothing taken, if that share would be left with
  // less than the flight's own would have.
  bool MakeRoom(const PlanFlight& flight, Landings* displaced)
      SKRULL_REQUIRES(mutex_);
  absl::Status Enqueue(const Flight& flight) SKRULL_REQUIRES(mutex_);
  void RemoveQueued(const PlanFlight& flight) SKRULL_REQUIRES(mutex_);
  // Forgets a flight that was queued, and returns its callers.
  std::vector<std::shared_ptr<PlanCaller>> Leave(const Flight& flight)
      SKRULL_REQUIRES(mutex_);
  absl::Status FullError(const std::string& what, const std::string& share)
      SKRULL_REQUIRES(mutex_);
  double RetrySeconds(const std::string& share) SKRULL_REQUIRES(mutex_);

  // What a worker does: takes the next flight and sees it through.
  void RunNext(const absl::Status& status) SKRULL_EXCLUDES(mutex_);
  // Reads and plans it; false if it was not planned.
  bool Run(const Flight& flight, const absl::Status& status)
      SKRULL_EXCLUDES(mutex_);
  // True if some caller waits for it. Else closes the flight to new callers.
  bool Wanted(const PlanFlight& flight) SKRULL_EXCLUDES(mutex_);
  // Gives a flight that was read its task; true if an earlier flight of the
  // same key takes over its callers.
  bool Resume(const Flight& flight, PlanTask task) SKRULL_EXCLUDES(mutex_);
  void Land(const Flight& flight, const PlanOutcome& result)
      SKRULL_EXCLUDES(mutex_);

  const PlanningLimits limits_;
  const Clock* const clock_;
  Metrics* const metrics_;

  Mutex mutex_;
  FairQueue queue_ SKRULL_GUARDED_BY(mutex_);
  // Those with a key that new callers may join.
  std::unordered_map<std::string, Flight> flights_ SKRULL_GUARDED_BY(mutex_);
  // Of each client, flights that are queued or being planned; at least 1.
  std::unordered_map<std::string, int64_t> in_progress_
      SKRULL_GUARDED_BY(mutex_);
  // Calls of RunNext that workers_ still owes us: never fewer than flights are
  // queued.
  int64_t owed_ SKRULL_GUARDED_BY(mutex_) = 0;

  WorkerPool workers_;  // last: its threads use the rest
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNING_POOL_H_
