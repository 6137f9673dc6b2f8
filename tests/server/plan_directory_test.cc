#include "skrull/server/plan_directory.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "skrull/planner/error.h"
#include "skrull/planner/planner.h"
#include "skrull/server/convert.h"
#include "skrull/server/job_directory.h"
#include "skrull/server/store.h"
#include "skrull/tests/server/service_test_util.h"

namespace skrull {
namespace {

using std::chrono::steady_clock;
using PlanOr = absl::StatusOr<std::shared_ptr<const CommittedPlan>>;

ErrorReason ReasonOf(const absl::Status& status) {
  return GetErrorDetail(status).value_or(ErrorDetail{}).reason;
}

std::shared_ptr<const CommittedPlan> TestPlan(
    const Job& job, int64_t step, const std::vector<int64_t>& lengths) {
  absl::StatusOr<Plan> plan =
      MakePlan(job, lengths, PlanOptions{{"run", step, 0}, std::nullopt, 0});
  REQUIRE(plan.ok());
  const v1::Plan message = PlanToProto(*plan);
  PlanRecord record{.key = plan->key,
                    .generation = 1,
                    .request_digest = "digest",
                    .plan = CanonicalBytes(message)};
  return CommittedPlan::Make(*std::move(plan), message.digest(),
                             std::move(record));
}

struct TestWait {
  TestWait(const std::shared_ptr<RegisteredJob>& job, int64_t step,
           steady_clock::time_point deadline = steady_clock::time_point::max())
      : wait(std::make_shared<PlanWait>(job, StepKey{job->id(), step, 0},
                                        deadline, [this](const PlanOr& answer) {
                                          ++answers;
                                          promise.set_value(answer);
                                        })) {}

  std::atomic<int> answers = 0;
  std::promise<PlanOr> promise;
  std::future<PlanOr> plan = promise.get_future();
  std::shared_ptr<PlanWait> wait;
};

struct Fixture {
  explicit Fixture(PlanDirectory::Limits limits = {})
      : plans(
            limits, [](std::function<void()> task) { task(); }, Clock::Real(),
            &metrics) {
    REQUIRE(jobs.Create({.name = "run", .spec = spec}, {}).ok());
    registered = *jobs.Find("run");
  }
  ~Fixture() { plans.Drain(); }

  StepKey Key(int64_t step) const { return {registered->id(), step, 0}; }

  const v1::JobSpec spec = testing::SmallSpec(2, 2, 100);
  const Job job = *JobFromProto(spec);
  Metrics metrics;
  PlanDirectory plans;
  std::unique_ptr<Store> store = *OpenStore("memory");
  const Logger logger{LogLevel::kError, Clock::Real()};
  JobDirectory jobs{
      store.get(), &logger, &metrics,
      [this](const RegisteredJob& ended) { plans.EndJob(ended); }};
  std::shared_ptr<RegisteredJob> registered;
};

TEST_CASE("PlanDirectory: a commit answers its own step's waits",
          "[server][plan_directory]") {
  Fixture f;
  TestWait first(f.registered, 1), second(f.registered, 1),
      other(f.registered, 2);
  CHECK(f.plans.Wait(first.wait));         // the first looks into the store
  CHECK_FALSE(f.plans.Wait(second.wait));  // the second relies on it
  CHECK(f.plans.Wait(other.wait));
  const auto plan = TestPlan(f.job, 1, {1, 2, 3});
  f.plans.Publish(f.Key(1), plan);
  CHECK(*first.plan.get() == plan);
  CHECK(*second.plan.get() == plan);
  CHECK(other.answers == 0);
  CHECK(f.plans.Find(f.Key(1)) == plan);
  CHECK(f.plans.Find(f.Key(2)) == nullptr);
  TestWait late(f.registered, 1);
  CHECK_FALSE(f.plans.Wait(late.wait));
  CHECK(*late.plan.get() == plan);
  f.plans.Drain();
}

TEST_CASE(
    "PlanDirectory: waits end by cancellation, before or after they begin",
    "[server][plan_directory]") {
  Fixture f;
  TestWait early(f.registered, 1), late(f.registered, 1),
      stays(f.registered, 1);
  f.plans.Cancel(early.wait);
  CHECK(early.answers == 0);
  CHECK_FALSE(f.plans.Wait(early.wait));
  CHECK(ReasonOf(early.plan.get().status()) == ErrorReason::kCancelled);
  CHECK(f.plans.Wait(stays.wait));
  CHECK_FALSE(f.plans.Wait(late.wait));
  f.plans.Cancel(late.wait);
  f.plans.Cancel(late.wait);
  CHECK(ReasonOf(late.plan.get().status()) == ErrorReason::kCancelled);
  CHECK(late.answers == 1);
  CHECK(stays.answers == 0);
  f.plans.Fail(f.Key(1), MakeError({.reason = ErrorReason::kStoreFailed}, "x"));
  CHECK(ReasonOf(stays.plan.get().status()) == ErrorReason::kStoreFailed);
}

TEST_CASE("PlanDirectory: deadlines end waits in their order",
          "[server][plan_directory]") {
  Fixture f;
  const auto now = steady_clock::now();
  TestWait never(f.registered, 1);
  TestWait later(f.registered, 1, now + std::chrono::milliseconds(50));
  TestWait past(f.registered, 1, now - std::chrono::hours(1));
  CHECK(f.plans.Wait(never.wait) == true);
  CHECK(f.plans.Wait(later.wait) == false);
  CHECK(f.plans.Wait(past.wait) == false);
  CHECK(ReasonOf(past.plan.get().status()) == ErrorReason::kDeadlineExceeded);
  const absl::Status status = later.plan.get().status();
  CHECK(ReasonOf(status) == ErrorReason::kDeadlineExceeded);
  CHECK(std::string(status.message()).find("step 1") != std::string::npos);
  CHECK(steady_clock::now() >= now + std::chrono::milliseconds(50));
  CHECK(never.answers == 0);
  f.plans.Drain();
}

TEST_CASE("PlanDirectory: a bound on waits, and none after a drain",
          "[server][plan_directory]") {
  Fixture f({.max_waits = 1});
  TestWait first(f.registered, 1), second(f.registered, 2),
      third(f.registered, 3);
  CHECK(f.plans.Wait(first.wait));
  CHECK_FALSE(f.plans.Wait(second.wait));
  CHECK(ReasonOf(second.plan.get().status()) == ErrorReason::kLimitExceeded);
  f.plans.Drain();
  CHECK(ReasonOf(first.plan.get().status()) == ErrorReason::kDraining);
  CHECK_FALSE(f.plans.Wait(third.wait));
  CHECK(ReasonOf(third.plan.get().status()) == ErrorReason::kDraining);
}

TEST_CASE("PlanDirectory: the cache forgets the least recently used plan",
          "[server][plan_directory]") {
  Fixture probe;
  const int64_t size = TestPlan(probe.job, 1, {1, 2, 3})->size_bytes();
  Fixture f({.max_cached_bytes = 2 * size + size / 2});
  for (int64_t step = 1; step <= 2; ++step) {
    f.plans.Publish(f.Key(step), TestPlan(f.job, step, {1, 2, 3}));
  }
  CHECK(f.plans.Find(f.Key(1)) != nullptr);  // now step 2 is the oldest
  f.plans.Publish(f.Key(3), TestPlan(f.job, 3, {1, 2, 3}));
  CHECK(f.plans.Find(f.Key(1)) != nullptr);
  CHECK(f.plans.Find(f.Key(2)) == nullptr);
  CHECK(f.plans.Find(f.Key(3)) != nullptr);
  // A plan larger than the whole cache is kept while it is the newest.
  f.plans.Publish(f.Key(4), TestPlan(f.job, 4, std::vector<int64_t>(1000, 1)));
  CHECK(f.plans.Find(f.Key(4)) != nullptr);
  CHECK(f.plans.Find(f.Key(1)) == nullptr);
}

TEST_CASE("JobDirectory: the end of a job ends its waits and its writes",
          "[server][job_directory]") {
  Fixture f;
  TestWait wait(f.registered, 1), late(f.registered, 1);
  CHECK(f.plans.Wait(wait.wait));
  f.plans.Publish(f.Key(2), TestPlan(f.job, 2, {1}));
  CHECK(f.registered->Write([] { return absl::OkStatus(); }).ok());
  REQUIRE(f.jobs.Delete("run", 1).ok());
  CHECK(ReasonOf(wait.plan.get().status()) == ErrorReason::kJobNotFound);
  CHECK(f.plans.Find(f.Key(2)) == nullptr);
  CHECK_FALSE(f.plans.Wait(late.wait));
  CHECK(ReasonOf(late.plan.get().status()) == ErrorReason::kJobNotFound);
  bool wrote = false;
  CHECK(ReasonOf(f.registered->Write([&] {
          wrote = true;
          return absl::OkStatus();
        })) == ErrorReason::kJobNotFound);
  CHECK_FALSE(wrote);
  CHECK(f.jobs.count() == 0);

  // Its successor has the same generation and another life.
  REQUIRE(f.jobs.Create({.name = "run", .spec = f.spec}, {}).ok());
  const auto successor = *f.jobs.Find("run");
  CHECK(successor->record().generation == 1);
  CHECK(successor->id() != f.registered->id());
}

TEST_CASE("JobDirectory: a deletion waits for writes under way",
          "[server][job_directory]") {
  Fixture f;
  std::promise<void> writing, finish;
  std::atomic<bool> deleted = false;
  bool deleted_early = false;
  std::jthread writer([&] {
    CHECK(f.registered
              ->Write([&] {
                writing.set_value();
                finish.get_future().wait();
                deleted_early = deleted;
                return absl::OkStatus();
              })
              .ok());
  });
  writing.get_future().wait();
  std::jthread deleter([&] {
    f.jobs.Delete("run", 0).IgnoreError();
    deleted = true;
  });
  // New writes are refused as soon as the deletion has begun.
  REQUIRE(testing::Eventually([&] { return !f.registered->ended().ok(); }));
  finish.set_value();
  deleter.join();
  writer.join();
  CHECK_FALSE(deleted_early);
}

TEST_CASE("JobDirectory: a refused change leaves the job alive",
          "[server][job_directory]") {
  Fixture f;
  const v1::JobSpec other = testing::SmallSpec(1, 1, 5);
  CHECK(ReasonOf(f.jobs.Create({.name = "run", .spec = other}, {}).status()) ==
        ErrorReason::kJobExists);
  CHECK(ReasonOf(f.jobs.Delete("run", 7)) == ErrorReason::kGenerationMismatch);
  CHECK(f.registered->ended().ok());
  CHECK(*f.jobs.Find("run") == f.registered);
  REQUIRE(
      f.jobs.Create({.name = "run", .spec = other, .generation = 2}, {}).ok());
  CHECK(ReasonOf(f.registered->ended()) == ErrorReason::kGenerationMismatch);
  CHECK((*f.jobs.Find("run"))->job().pool().ranks() == 1);
}

}  // namespace
}  // namespace skrull
