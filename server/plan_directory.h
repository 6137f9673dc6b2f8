// Committed plans in memory, and the calls that wait for one.
//
// A call that waits occupies no thread: it is a callback in a table until its
// plan is committed, its job ends, its caller goes away or its time runs out.
#ifndef SKRULL_SERVER_PLAN_DIRECTORY_H_
#define SKRULL_SERVER_PLAN_DIRECTORY_H_

#include <atomic>
#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/server/alarm.h"
#include "skrull/server/clock.h"
#include "skrull/server/committed_plan.h"
#include "skrull/server/job_directory.h"
#include "skrull/server/metrics.h"
#include "skrull/server/mutex.h"

namespace skrull {

// One step of one life of a job.
struct StepKey {
  uint64_t job_id = 0;  // RegisteredJob::id()
  int64_t step = 0;
  int32_t attempt = 0;

  friend auto operator<=>(const StepKey&, const StepKey&) = default;
};

// One call that waits. Shared by the directory and the call's own cancellation.
class PlanWait {
 public:
  using Done = std::function<void(
      const absl::StatusOr<std::shared_ptr<const CommittedPlan>>&)>;

  // `done` is called once, on any thread, by the directory; with no lock held.
  PlanWait(std::shared_ptr<const RegisteredJob> job, StepKey key,
           std::chrono::steady_clock::time_point deadline, Done done)
      : job_(std::move(job)),
        key_(key),
        deadline_(deadline),
        done_(std::move(done)) {}

 private:
  friend class PlanDirectory;

  const std::shared_ptr<const RegisteredJob> job_;
  const StepKey key_;
  const std::chrono::steady_clock::time_point deadline_;
  const Done done_;
  std::atomic<bool> cancelled_ = false;
  // Where it is in the directory's tables, while it waits; under its lock.
  size_t position_ = 0;
  std::multimap<std::chrono::steady_clock::time_point,
                std::shared_ptr<PlanWait>>::iterator timer_;
};

// Thread-safe.
class PlanDirectory {
 public:
  struct Limits {
    int64_t max_waits = 65536;
    int64_t max_cached_bytes = int64_t{256} << 20;
  };

  // Runs a task soon, on some thread, or at once.
  using Executor = std::function<void(std::function<void()>)>;

  // Starts a thread for deadlines. `executor` runs the answers that follow a
  // commit, so that whoever commits is not held up by them. `clock` and
  // `metrics` must outlive the directory.
  PlanDirectory(Limits limits, Executor executor, const Clock* clock,
                Metrics* metrics);
  // REQUIRES: Drain was called, or no call waits.
  ~PlanDirectory() = default;

  // The plan if it is in memory; nullptr says nothing about the store. O(log).
  std::shared_ptr<const CommittedPlan> Find(const StepKey& key)
      SKRULL_EXCLUDES(mutex_);

  // Takes in a plan that stands committed, and has all calls that wait for it
  // answered.
  void Publish(const StepKey& key, std::shared_ptr<const CommittedPlan> plan)
      SKRULL_EXCLUDES(mutex_);

  // Has the call wait, or answers it at once: with the plan, or with why it
  // cannot wait (its job ended, it was cancelled, kLimitExceeded, kDraining).
  // True if the caller must now look for the plan in the store, and call
  // Publish if it is there or Fail if the store fails: it is the first to wait
  // for this key.
  [[nodiscard]] bool Wait(const std::shared_ptr<PlanWait>& wait)
      SKRULL_EXCLUDES(mutex_);

  // Answers the call with kCancelled if it waits, now or later.
  void Cancel(const std::shared_ptr<PlanWait>& wait) SKRULL_EXCLUDES(mutex_);

  // Answers all calls that wait for the key with `status`.
  void Fail(const StepKey& key, const absl::Status& status)
      SKRULL_EXCLUDES(mutex_);

  // Forgets the plans of a job that has ended and answers its waiting calls
  // with why it did. REQUIRES: !job.ended().ok().
  void EndJob(const RegisteredJob& job) SKRULL_EXCLUDES(mutex_);

  // Answers all waiting calls, and those to come, with kDraining.
  void Drain() SKRULL_EXCLUDES(mutex_);

 private:
  using Waits = std::vector<std::shared_ptr<PlanWait>>;
  using Result = absl::StatusOr<std::shared_ptr<const CommittedPlan>>;

  struct Cached {
    std::shared_ptr<const CommittedPlan> plan;
    std::list<StepKey>::iterator age;
  };

  void Insert(const StepKey& key, std::shared_ptr<const CommittedPlan> plan)
      SKRULL_REQUIRES(mutex_);
  void Evict(std::map<StepKey, Cached>::iterator it) SKRULL_REQUIRES(mutex_);
  // Takes the key's waiting calls out of all tables.
  Waits TakeAll(const StepKey& key) SKRULL_REQUIRES(mutex_);
  // The same for one call; false if it does not wait.
  bool TakeOne(const std::shared_ptr<PlanWait>& wait) SKRULL_REQUIRES(mutex_);
  // Answers the calls whose deadline has come; when the next one comes.
  Alarm::Time Expire(Alarm::Time now) SKRULL_EXCLUDES(mutex_);
  static absl::Status DeadlineError(const PlanWait& wait);

  const Limits limits_;
  const Executor executor_;
  Metrics* const metrics_;

  Mutex mutex_;
  bool draining_ SKRULL_GUARDED_BY(mutex_) = false;
  std::map<StepKey, Cached> cached_ SKRULL_GUARDED_BY(mutex_);
  std::list<StepKey> ages_ SKRULL_GUARDED_BY(mutex_);  // oldest use first
  int64_t cached_bytes_ SKRULL_GUARDED_BY(mutex_) = 0;
  std::map<StepKey, Waits> waits_ SKRULL_GUARDED_BY(mutex_);
  // Every waiting call, by deadline.
  std::multimap<std::chrono::steady_clock::time_point,
                std::shared_ptr<PlanWait>>
      deadlines_ SKRULL_GUARDED_BY(mutex_);

  Alarm alarm_;  // last: it uses the rest
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLAN_DIRECTORY_H_
