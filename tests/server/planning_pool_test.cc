#include "skrull/server/planning_pool.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <stdexcept>
#include <thread>

#include "skrull/planner/error.h"
#include "skrull/tests/server/planning_pool_test_util.h"

namespace skrull {
namespace {

using std::chrono::steady_clock;
using testing::Blocker;
using testing::Flight;
using testing::ReasonOf;
using testing::TestCaller;

struct Fixture {
  Metrics metrics;
  PlanningPool pool{{.threads = 1, .max_queued = 4, .max_queue_seconds = 1000},
                    Clock::Real(),
                    &metrics};
  std::atomic<int> planned = 0;

  std::function<PlanOutcome()> Plan() {
    return [this]() -> PlanOutcome {
      ++planned;
      return PlanAnswer();
    };
  }
};

TEST_CASE("PlanningPool: equal keys in progress are planned once",
          "[server][planning_pool]") {
  Fixture f;
  Blocker blocker(&f.pool);
  std::vector<std::unique_ptr<TestCaller>> callers;
  for (int i = 0; i < 64; ++i) {
    callers.push_back(std::make_unique<TestCaller>());
    f.pool.Submit(Flight("key", callers.back()->caller, f.Plan()));
  }
  TestCaller other;
  f.pool.Submit(Flight("other", other.caller, f.Plan()));
  blocker.Release();
  for (const auto& caller : callers) CHECK(caller->status.get().ok());
  CHECK(other.status.get().ok());
  CHECK(f.planned == 2);
  // The flight has landed: the next request of its key is planned anew.
  TestCaller later;
  f.pool.Submit(Flight("key", later.caller, f.Plan()));
  CHECK(later.status.get().ok());
  CHECK(f.planned == 3);
}

TEST_CASE("PlanningPool: a shared request is dropped only without callers",
          "[server][planning_pool]") {
  Fixture f;
  Blocker blocker(&f.pool);
  TestCaller gone, expired(steady_clock::time_point::min()), waits, alone;
  f.pool.Submit(Flight("shared", gone.caller, f.Plan()));
  f.pool.Submit(Flight("shared", expired.caller, f.Plan()));
  f.pool.Submit(Flight("shared", waits.caller, f.Plan()));
  f.pool.Submit(Flight("alone", alone.caller, f.Plan()));
  const absl::Status cancelled =
      MakeError({.reason = ErrorReason::kCancelled}, "gone");
  gone.caller->Complete(cancelled);
  alone.caller->Complete(cancelled);
  blocker.Release();
  CHECK(waits.status.get().ok());
  CHECK(ReasonOf(gone.status.get()) == ErrorReason::kCancelled);
  CHECK(ReasonOf(alone.status.get()) == ErrorReason::kCancelled);
  TestCaller last;
  f.pool.Submit(Flight("", last.caller, f.Plan()));
  CHECK(last.status.get().ok());
  CHECK(f.planned == 2);
  CHECK(gone.answers == 1);
  CHECK(alone.answers == 1);
}

TEST_CASE("PlanningPool: an expired request is answered, not planned",
          "[server][planning_pool]") {
  Fixture f;
  TestCaller expired(steady_clock::time_point::min());
  f.pool.Submit(Flight("key", expired.caller, f.Plan()));
  CHECK(ReasonOf(expired.status.get()) == ErrorReason::kDeadlineExceeded);
  CHECK(f.planned == 0);
}

TEST_CASE(
    "PlanningPool: a full queue refuses, with a hint; joining still works",
    "[server][planning_pool]") {
  Fixture f;
  Blocker blocker(&f.pool);
  std::vector<std::unique_ptr<TestCaller>> callers;
  for (int i = 0; i < 4; ++i) {
    callers.push_back(std::make_unique<TestCaller>());
    f.pool.Submit(Flight(std::to_string(i), callers.back()->caller, f.Plan()));
  }
  TestCaller refused, joined;
  f.pool.Submit(Flight("4", refused.caller, f.Plan()));
  const absl::Status status = refused.status.get();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(ReasonOf(status) == ErrorReason::kQueueFull);
  CHECK(GetErrorDetail(status)->limit == 4);
  CHECK(GetErrorDetail(status)->retry_after_seconds > 0);
  f.pool.Submit(Flight("3", joined.caller, f.Plan()));
  blocker.Release();
  for (const auto& caller : callers) CHECK(caller->status.get().ok());
  CHECK(joined.status.get().ok());
  CHECK(f.planned == 4);
}

TEST_CASE("PlanningPool: Close answers what waits and lets finish what runs",
          "[server][planning_pool]") {
  Fixture f;
  Blocker blocker(&f.pool);
  TestCaller queued, late;
  f.pool.Submit(Flight("a", queued.caller, f.Plan()));
  f.pool.Close();
  CHECK(ReasonOf(queued.status.get()) == ErrorReason::kDraining);
  f.pool.Submit(Flight("b", late.caller, f.Plan()));
  CHECK(ReasonOf(late.status.get()) == ErrorReason::kDraining);
  CHECK(f.planned == 0);
}

TEST_CASE("PlanningPool: an exception ends the request, not the daemon",
          "[server][planning_pool]") {
  Fixture f;
  TestCaller caller;
  f.pool.Submit(Flight("a", caller.caller,
                       []() -> PlanOutcome { throw std::bad_alloc(); }));
  CHECK(ReasonOf(caller.status.get()) == ErrorReason::kInternal);
}

TEST_CASE("PlanningPool: many threads, each caller is answered once",
          "[server][planning_pool]") {
  constexpr int kThreads = 4;
  constexpr int kCalls = 500;
  Metrics metrics;
  std::vector<std::unique_ptr<TestCaller>> callers;
  for (int i = 0; i < kThreads * kCalls; ++i) {
    callers.push_back(std::make_unique<TestCaller>());
  }
  {
    PlanningPool pool({.threads = 3, .max_queued = 64}, Clock::Real(),
                      &metrics);
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kCalls; ++i) {
          TestCaller& caller = *callers[static_cast<size_t>(t * kCalls + i)];
          pool.Submit(Flight(
              std::to_string(i % 7), caller.caller,
              []() -> PlanOutcome { return PlanAnswer(); },
              std::to_string(i % 5)));
          if (i % 3 == 0) {
            caller.caller->Complete(
                MakeError({.reason = ErrorReason::kCancelled}, "gone"));
            pool.Forget(caller.caller);
          }
        }
      });
    }
  }
  for (const auto& caller : callers) CHECK(caller->answers == 1);
}

}  // namespace
}  // namespace skrull
