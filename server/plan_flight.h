// One batch in the planning pool, with all callers that wait for its plan.
#ifndef SKRULL_SERVER_PLAN_FLIGHT_H_
#define SKRULL_SERVER_PLAN_FLIGHT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/server/plan_caller.h"

namespace skrull {

// What is planned, once the request has been read.
struct PlanTask {
  // Equal for requests that are answered with one plan; empty for one that is
  // like no other.
  std::string key;
  std::function<PlanOutcome()> plan;
};

// Plain data, in the hands of one PlanningPool and guarded by its lock, but for
// `read` and `task`, which the thread that plans has to itself.
struct PlanFlight {
  // Set by whoever submits it ------------------------------------------------
  // Whose turn it takes: shares have equal parts of the pool.
  std::string share;
  // Whom it counts against; see PlanningLimits::max_client_plans.
  std::string client;
  // Lengths of the batch, or an estimate of how many there are.
  int64_t lengths = 0;
  // Memory it holds while it waits.
  int64_t bytes = 0;
  // What is planned; or, for a request that is read when its turn comes, `read`
  // and an empty task.
  PlanTask task;
  std::function<absl::StatusOr<PlanTask>()> read;
  // At least the one that it is submitted for.
  std::vector<std::shared_ptr<PlanCaller>> callers;

  // Kept by the pool and its queue -------------------------------------------
  int64_t waiting_callers = 0;  // those that have not gone away
  double expected_seconds = 0;  // of its planning, as it is accounted for
  bool queued = false;          // no thread has taken it yet
  std::chrono::steady_clock::time_point queued_at;
  std::list<std::shared_ptr<PlanFlight>>::iterator position;  // while queued
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLAN_FLIGHT_H_
