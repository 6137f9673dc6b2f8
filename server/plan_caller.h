// One party that waits for the plan of a batch: a PlanBatch call, or one batch
// of a stream.
#ifndef SKRULL_SERVER_PLAN_CALLER_H_
#define SKRULL_SERVER_PLAN_CALLER_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "skrull/server/committed_plan.h"

namespace skrull {

// What a request for a plan is answered with; immutable and shared by all
// callers of one planning.
struct PlanAnswer {
  std::shared_ptr<const CommittedPlan> plan;
  // Time spent in planning and checking; nullopt when nothing was planned.
  std::optional<double> planning_seconds;
  bool committed = false;
};

using PlanOutcome = absl::StatusOr<PlanAnswer>;

struct PlanFlight;

// Thread-safe. Whoever completes it first calls the callback; there is one
// call, however completion, cancellation and shutdown race.
class PlanCaller {
 public:
  PlanCaller(std::chrono::steady_clock::time_point deadline,
             std::function<void(const PlanOutcome&)> done)
      : deadline_(deadline), done_(std::move(done)) {}
  PlanCaller(const PlanCaller&) = delete;
  PlanCaller& operator=(const PlanCaller&) = delete;

  // Calls the callback, unless it was called before.
  void Complete(const PlanOutcome& result) {
    if (!completed_.exchange(true)) done_(result);
  }

  bool completed() const { return completed_.load(); }
  std::chrono::steady_clock::time_point deadline() const { return deadline_; }

 private:
  friend class PlanningPool;

  const std::chrono::steady_clock::time_point deadline_;
  const std::function<void(const PlanOutcome&)> done_;
  std::atomic<bool> completed_ = false;
  // The pool's, under its lock: what the caller waits for.
  std::weak_ptr<PlanFlight> flight_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLAN_CALLER_H_
