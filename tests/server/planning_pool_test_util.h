// Callers and flights for tests of the planning pool.
#ifndef SKRULL_TESTS_SERVER_PLANNING_POOL_TEST_UTIL_H_
#define SKRULL_TESTS_SERVER_PLANNING_POOL_TEST_UTIL_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <utility>

#include "skrull/planner/error.h"
#include "skrull/server/planning_pool.h"

namespace skrull::testing {

inline ErrorReason ReasonOf(const absl::Status& status) {
  return GetErrorDetail(status).value_or(ErrorDetail{}).reason;
}

// An answer to come. What should have been answered and is not fails a test,
// and does not hang it.
class Answer {
 public:
  explicit Answer(std::future<absl::Status> future)
      : future_(std::move(future)) {}

  void wait() const { future_.wait_for(std::chrono::minutes(1)); }
  // Once. UNKNOWN if there is none within a minute.
  absl::Status get() {
    if (future_.wait_for(std::chrono::minutes(1)) !=
        std::future_status::ready) {
      return absl::UnknownError("no answer within a minute");
    }
    return future_.get();
  }

 private:
  std::future<absl::Status> future_;
};

// A caller whose answer can be waited for.
struct TestCaller {
  explicit TestCaller(std::chrono::steady_clock::time_point deadline =
                          std::chrono::steady_clock::time_point::max())
      : caller(std::make_shared<PlanCaller>(
            deadline, [this](const PlanOutcome& result) {
              ++answers;
              promise.set_value(result.status());
            })) {}

  std::atomic<int> answers = 0;
  std::promise<absl::Status> promise;
  Answer status{promise.get_future()};
  std::shared_ptr<PlanCaller> caller;
};

// A flight of `caller`, of 100 lengths, unless said otherwise.
inline std::shared_ptr<PlanFlight> Flight(
    const std::string& key, const std::shared_ptr<PlanCaller>& caller,
    std::function<PlanOutcome()> plan, const std::string& share = "job") {
  auto flight = std::make_shared<PlanFlight>();
  flight->share = share;
  flight->client = share;
  flight->lengths = 100;
  flight->bytes = 800;
  flight->task = {.key = key, .plan = std::move(plan)};
  flight->callers.push_back(caller);
  return flight;
}

// Occupies the one thread of a pool from construction to Release.
class Blocker {
 public:
  explicit Blocker(PlanningPool* pool) {
    pool->Submit(Flight(
        "", caller_.caller,
        [this]() -> PlanOutcome {
          running_.count_down();
          release_.wait();
          return PlanAnswer();
        },
        "blocker"));
    running_.wait();
  }
  ~Blocker() {
    Release();
    caller_.status.wait();
  }
  void Release() {
    if (!released_.exchange(true)) release_.count_down();
  }

 private:
  TestCaller caller_;
  std::latch running_{1};
  std::latch release_{1};
  std::atomic<bool> released_ = false;
};

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SERVER_PLANNING_POOL_TEST_UTIL_H_
