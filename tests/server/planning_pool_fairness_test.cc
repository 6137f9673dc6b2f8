// Whose turn it is, and who is refused, when more comes than can be planned.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "skrull/planner/error.h"
#include "skrull/tests/server/observe/manual_clock.h"
#include "skrull/tests/server/planning_pool_test_util.h"

namespace skrull {
namespace {

using std::chrono::milliseconds;
using testing::Blocker;
using testing::Flight;
using testing::ManualClock;
using testing::ReasonOf;
using testing::TestCaller;

// A pool of one thread on a clock of its own, in which every batch takes a
// millisecond a length. What is planned is noted, a letter a batch: the first
// of its share's name.
class Pool {
 public:
  explicit Pool(PlanningLimits limits) {
    limits.threads = 1;
    pool_ = std::make_unique<PlanningPool>(limits, &clock_, &metrics_);
  }

  // Plans a batch of the share, so that the pool knows what batches take.
  void Learn(const std::string& share, int64_t lengths) {
    TestCaller& caller = Submit(share, lengths);
    REQUIRE(caller.status.get().ok());
    // Its thread accounts for it before it takes the next.
    Blocker after(pool_.get());
    order_.clear();
  }

  TestCaller& Submit(const std::string& share, int64_t lengths = 100,
                     int64_t bytes = 800) {
    TestCaller& caller = *callers_.emplace_back(std::make_unique<TestCaller>());
    auto flight = Flight(
        "", caller.caller,
        [this, share, lengths]() -> PlanOutcome {
          order_ += share[0];
          clock_.Advance(milliseconds(lengths));
          return PlanAnswer();
        },
        share);
    flight->lengths = lengths;
    flight->bytes = bytes;
    pool_->Submit(flight);
    return caller;
  }

  PlanningPool* get() { return pool_.get(); }

  // Waits until all is answered; what was planned, in order.
  std::string Order() {
    for (const auto& caller : callers_) {
      if (caller->answers == 0) caller->status.wait();
    }
    pool_.reset();
    return order_;
  }

 private:
  ManualClock clock_;
  Metrics metrics_;
  std::string order_;  // of the pool's thread, while it runs
  std::vector<std::unique_ptr<TestCaller>> callers_;
  std::unique_ptr<PlanningPool> pool_;
};

bool Waits(const TestCaller& caller) { return caller.answers == 0; }

TEST_CASE("PlanningPool: a job that floods cannot hold up another",
          "[server][planning_pool]") {
  Pool pool({.max_queued = 1000, .max_queue_seconds = 1e6});
  {
    Blocker blocker(pool.get());
    for (int i = 0; i < 300; ++i) pool.Submit("flood", 60000);
    for (int i = 0; i < 3; ++i) pool.Submit("small", 10);
    pool.Submit("other", 10);
  }
  // Behind one batch of each, not behind 300.
  const std::string order = pool.Order();
  CHECK(order.substr(0, 3) == "fso");
  CHECK(order.substr(3, 2) == "ss");
  CHECK(order.size() == 304);
}

TEST_CASE("PlanningPool: a full queue takes from whoever has most in it",
          "[server][planning_pool]") {
  Pool pool({.max_queued = 4, .max_queue_seconds = 1e6});
  {
    Blocker blocker(pool.get());
    std::vector<TestCaller*> flood;
    for (int i = 0; i < 4; ++i) flood.push_back(&pool.Submit("flood"));
    // The flood's own next one is refused, not one that waits.
    CHECK(ReasonOf(pool.Submit("flood").status.get()) ==
          ErrorReason::kQueueFull);
    CHECK(Waits(*flood[3]));
    // Another job's first takes the place of the flood's newest.
    TestCaller& first = pool.Submit("a");
    CHECK(Waits(first));
    const absl::Status lost = flood[3]->status.get();
    CHECK(ReasonOf(lost) == ErrorReason::kQueueFull);
    CHECK(GetErrorDetail(lost)->retry_after_seconds > 0);
    CHECK(Waits(*flood[2]));
    // Until no one has more than the newcomer would: f f a b.
    CHECK(Waits(pool.Submit("b")));
    CHECK(ReasonOf(flood[2]->status.get()) == ErrorReason::kQueueFull);
    CHECK(ReasonOf(pool.Submit("a").status.get()) == ErrorReason::kQueueFull);
    CHECK(Waits(first));
    CHECK(Waits(*flood[1]));
  }
  CHECK(pool.Order() == "fabf");
}

TEST_CASE("PlanningPool: the bytes that wait are bounded",
          "[server][planning_pool]") {
  Pool pool(
      {.max_queued = 100, .max_queued_bytes = 1000, .max_queue_seconds = 1e6});
  {
    Blocker blocker(pool.get());
    // Alone, any batch is taken.
    TestCaller& huge = pool.Submit("huge", 1, 5000);
    CHECK(Waits(huge));
    CHECK(ReasonOf(pool.Submit("huge", 1, 1).status.get()) ==
          ErrorReason::kQueueFull);
    // The largest makes room, if it still has more then.
    CHECK(ReasonOf(pool.Submit("b", 1, 600).status.get()) ==
          ErrorReason::kQueueFull);
    CHECK(Waits(pool.Submit("b", 1, 400)));
    CHECK(ReasonOf(huge.status.get()) == ErrorReason::kQueueFull);
    CHECK(Waits(pool.Submit("c", 1, 600)));
    CHECK(ReasonOf(pool.Submit("c", 1, 1).status.get()) ==
          ErrorReason::kQueueFull);
  }
  CHECK(pool.Order() == "bc");
}

TEST_CASE("PlanningPool: what would wait for too long is refused at once",
          "[server][planning_pool]") {
  Pool pool({.max_queued = 1000, .max_queue_seconds = 2.5});
  pool.Learn("job", 1000 - 256);  // 1 ms a length or batch overhead, about
  {
    Blocker blocker(pool.get());
    // About 0.75 s each.
    std::vector<TestCaller*> taken;
    for (int i = 0; i < 3; ++i) taken.push_back(&pool.Submit("job", 744));
    for (const TestCaller* caller : taken) CHECK(Waits(*caller));
    // A small one does not wait so long behind its own job's.
    CHECK(Waits(pool.Submit("job", 1)));
    CHECK(Waits(pool.Submit("job", 1)));
    // 2.6 s are ahead of the next.
    const absl::Status status = pool.Submit("job", 1).status.get();
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK(ReasonOf(status) == ErrorReason::kQueueFull);
    CHECK(GetErrorDetail(status)->retry_after_seconds ==
          Approx(1.3).margin(0.2));
    // Another job's first is taken, and so is one that takes long itself.
    CHECK(Waits(pool.Submit("other", 1)));
    CHECK(Waits(pool.Submit("job", 744)));
  }
  CHECK(pool.Order().size() == 7);
}

TEST_CASE("PlanningPool: a stream's window of long batches is not refused",
          "[server][planning_pool]") {
  Pool pool({.max_queued = 1000, .max_queue_seconds = 0.001});
  pool.Learn("job", 100000);
  {
    Blocker blocker(pool.get());
    for (int i = 0; i < 8; ++i) CHECK(Waits(pool.Submit("job", 100000)));
    pool.Submit("job", 100000);  // eight are ahead of it
    CHECK(ReasonOf(pool.Submit("job", 100000).status.get()) ==
          ErrorReason::kQueueFull);
  }
  CHECK(pool.Order().size() == 9);
}

TEST_CASE("PlanningPool: a client's batches at once are bounded",
          "[server][planning_pool]") {
  Metrics metrics;
  PlanningPool pool({.threads = 1, .max_client_plans = 2}, Clock::Real(),
                    &metrics);
  const auto plan = []() -> PlanOutcome { return PlanAnswer(); };
  TestCaller first, second, third, same, other, later;
  {
    Blocker blocker(&pool);
    pool.Submit(Flight("1", first.caller, plan));
    pool.Submit(Flight("2", second.caller, plan));
    CHECK_FALSE(pool.Submit(Flight("3", third.caller, plan)));
    const absl::Status status = third.status.get();
    CHECK(ReasonOf(status) == ErrorReason::kQuotaExceeded);
    CHECK(GetErrorDetail(status)->limit == 2);
    CHECK(GetErrorDetail(status)->retry_after_seconds > 0);
    // The same batch again is no batch more; another client has its own quota.
    CHECK(pool.Submit(Flight("2", same.caller, plan)));
    CHECK(pool.Submit(Flight("3", other.caller, plan, "other")));
  }
  for (TestCaller* caller : {&first, &second, &same, &other}) {
    CHECK(caller->status.get().ok());
  }
  CHECK(pool.Submit(Flight("4", later.caller, plan)));
  CHECK(later.status.get().ok());
}

TEST_CASE("PlanningPool: a batch whose callers left gives up its place",
          "[server][planning_pool]") {
  Metrics metrics;
  PlanningPool pool({.threads = 1,
                     .max_queued = 2,
                     .max_queue_seconds = 1e6,
                     .max_client_plans = 2},
                    Clock::Real(), &metrics);
  std::atomic<int> planned = 0;
  const auto plan = [&planned]() -> PlanOutcome {
    ++planned;
    return PlanAnswer();
  };
  const absl::Status gone = MakeError({.reason = ErrorReason::kCancelled}, "");
  TestCaller stays, left, joined, next;
  {
    Blocker blocker(&pool);
    pool.Submit(Flight("1", stays.caller, plan));
    pool.Submit(Flight("2", left.caller, plan));
    pool.Submit(Flight("2", joined.caller, plan));
    left.caller->Complete(gone);
    pool.Forget(left.caller);
    pool.Forget(left.caller);  // once more changes nothing
    TestCaller refused;
    CHECK_FALSE(pool.Submit(Flight("3", refused.caller, plan)));
    joined.caller->Complete(gone);
    pool.Forget(joined.caller);
    CHECK(pool.Submit(Flight("3", next.caller, plan)));
    // A key that left can be planned again.
    TestCaller again;
    CHECK_FALSE(pool.Submit(Flight("2", again.caller, plan)));
  }
  CHECK(stays.status.get().ok());
  CHECK(next.status.get().ok());
  CHECK(planned == 2);
}

// A request that is read when its turn comes.
std::shared_ptr<PlanFlight> Unread(
    const std::shared_ptr<PlanCaller>& caller,
    std::function<absl::StatusOr<PlanTask>()> read) {
  auto flight = Flight("", caller, nullptr);
  flight->read = std::move(read);
  return flight;
}

TEST_CASE("PlanningPool: an unread request joins the flight of its key",
          "[server][planning_pool]") {
  Metrics metrics;
  PlanningPool pool({.threads = 2}, Clock::Real(), &metrics);
  std::latch running(1), release(1);
  std::atomic<int> planned = 0;
  TestCaller first, second, third;
  pool.Submit(Flight("key", first.caller, [&]() -> PlanOutcome {
    ++planned;
    running.count_down();
    release.wait();
    return PlanAnswer();
  }));
  running.wait();
  const auto read = [&]() -> absl::StatusOr<PlanTask> {
    return PlanTask{.key = "key", .plan = [&]() -> PlanOutcome {
                      ++planned;
                      return PlanAnswer();
                    }};
  };
  pool.Submit(Unread(second.caller, read));
  // The second thread is done with the unread one when it has run another.
  TestCaller after;
  pool.Submit(Flight("after", after.caller,
                     []() -> PlanOutcome { return PlanAnswer(); }));
  CHECK(after.status.get().ok());
  CHECK(Waits(second));
  release.count_down();
  CHECK(first.status.get().ok());
  CHECK(second.status.get().ok());
  CHECK(planned == 1);
  // Alone it is planned.
  pool.Submit(Unread(third.caller, read));
  CHECK(third.status.get().ok());
  CHECK(planned == 2);
}

TEST_CASE("PlanningPool: a request that cannot be read is refused",
          "[server][planning_pool]") {
  Metrics metrics;
  PlanningPool pool({.threads = 1, .max_client_plans = 1}, Clock::Real(),
                    &metrics);
  for (int i = 0; i < 3; ++i) {
    TestCaller caller;
    REQUIRE(pool.Submit(Unread(caller.caller, [] {
      return absl::StatusOr<PlanTask>(FieldError("request", "is none"));
    })));
    CHECK(ReasonOf(caller.status.get()) == ErrorReason::kFieldInvalid);
  }
}

}  // namespace
}  // namespace skrull
