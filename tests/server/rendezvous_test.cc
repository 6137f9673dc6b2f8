#include "skrull/server/rendezvous.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <random>
#include <thread>

#include "skrull/planner/error.h"
#include "skrull/server/convert.h"
#include "skrull/server/store.h"
#include "skrull/tests/server/service_test_util.h"

namespace skrull {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

ErrorReason ReasonOf(const absl::Status& status) {
  return GetErrorDetail(status).value_or(ErrorDetail{}).reason;
}

struct TestCall {
  TestCall(const std::shared_ptr<RegisteredJob>& job, const std::string& key,
           int32_t size, int32_t rank, const std::string& offer = "",
           steady_clock::time_point deadline = steady_clock::time_point::max())
      : call(std::make_shared<RendezvousCall>(
            job, RendezvousCall::Terms{key, size, rank, offer}, deadline,
            [state = state](const RendezvousCall::Answer& result) {
              if (++state->answers == 1) state->promise.set_value(result);
            })) {}

  int answers() const { return state->answers; }
  // REQUIRES: one of these is called, at most once.
  absl::Status Status() { return state->answer.get().status(); }
  ErrorReason Reason() { return ReasonOf(Status()); }
  std::string Offer() {
    const RendezvousCall::Answer result = state->answer.get();
    return result.ok() ? **result : std::string(result.status().message());
  }

  // The table may answer a call that still waits after the test's end.
  struct State {
    std::atomic<int> answers = 0;
    std::promise<RendezvousCall::Answer> promise;
    std::future<RendezvousCall::Answer> answer = promise.get_future();
  };
  std::shared_ptr<State> state = std::make_shared<State>();
  std::shared_ptr<RendezvousCall> call;
};

struct Fixture {
  explicit Fixture(Rendezvous::Limits limits = {})
      : table(
            limits, [](std::function<void()> task) { task(); }, Clock::Real(),
            &metrics) {
    registered = Register("run");
  }
  ~Fixture() { table.Drain(); }

  std::shared_ptr<RegisteredJob> Register(const std::string& name) {
    const v1::JobSpec spec = testing::SmallSpec(2, 2, 100);
    REQUIRE(jobs.Create({.name = name, .spec = spec}, {}).ok());
    return *jobs.Find(name);
  }

  Metrics metrics;
  Rendezvous table;
  std::unique_ptr<Store> store = *OpenStore("memory");
  const Logger logger{LogLevel::kError, Clock::Real()};
  JobDirectory jobs{
      store.get(), &logger, &metrics,
      [this](const RegisteredJob& ended) { table.EndJob(ended); }};
  std::shared_ptr<RegisteredJob> registered;
};

TEST_CASE("Rendezvous: the last rank completes its own meeting alone",
          "[server][rendezvous]") {
  Fixture f;
  const auto other_job = f.Register("other");
  TestCall r1(f.registered, "a", 3, 1), r0(f.registered, "a", 3, 0, "id"),
      other_key(f.registered, "b", 3, 2), other(other_job, "a", 3, 2),
      r2(f.registered, "a", 3, 2);
  for (TestCall* call : {&r1, &r0, &other_key, &other})
    f.table.Join(call->call);
  CHECK(r0.answers() + r1.answers() + other_key.answers() + other.answers() ==
        0);
  f.table.Join(r2.call);
  for (TestCall* call : {&r0, &r1, &r2}) {
    CHECK(call->Offer() == "id");
    CHECK(call->answers() == 1);
  }
  CHECK(other_key.answers() + other.answers() == 0);
  // The key is free again, for another size.
  TestCall alone(f.registered, "a", 1, 0, "new");
  f.table.Join(alone.call);
  CHECK(alone.Offer() == "new");
}

TEST_CASE("Rendezvous: the first deadline ends the meeting for all its ranks",
          "[server][rendezvous]") {
  Fixture f;
  const auto soon = steady_clock::now() + milliseconds(50);
  TestCall patient(f.registered, "a", 4, 0, "id"),
      hasty(f.registered, "a", 4, 2, "", soon), other(f.registered, "b", 2, 1);
  f.table.Join(other.call);
  f.table.Join(patient.call);
  f.table.Join(hasty.call);
  const absl::Status first = hasty.Status();
  const absl::Status second = patient.Status();
  CHECK(steady_clock::now() >= soon);
  CHECK(first == second);
  CHECK(ReasonOf(first) == ErrorReason::kDeadlineExceeded);
  CHECK(GetErrorDetail(first)->indices == std::vector<int64_t>{1, 3});
  CHECK_THAT(std::string(first.message()), Catch::Contains("rank 1, 3"));
  CHECK(other.answers() == 0);
  // Forgotten: the ranks that came then must come again.
  TestCall late1(f.registered, "a", 4, 1), late3(f.registered, "a", 4, 3);
  f.table.Join(late1.call);
  f.table.Join(late3.call);
  CHECK(late1.answers() + late3.answers() == 0);
}

TEST_CASE("Rendezvous: a message lists at most 32 of the missing ranks",
          "[server][rendezvous]") {
  Fixture f;
  TestCall call(f.registered, "a", 65536, 5, "", steady_clock::now());
  f.table.Join(call.call);
  const absl::Status status = call.Status();
  const std::vector<int64_t> indices = GetErrorDetail(status)->indices;
  REQUIRE(indices.size() == 32);
  CHECK(indices[4] == 4);
  CHECK(indices[5] == 6);
  CHECK_THAT(std::string(status.message()),
             Catch::Contains("65535 of 65536") && Catch::EndsWith(", ..."));
}

TEST_CASE("Rendezvous: a rank that goes away leaves, and may come back",
          "[server][rendezvous]") {
  Fixture f;
  TestCall r0(f.registered, "a", 2, 0, "id"),
      gone(f.registered, "a", 2, 0, "x"), early(f.registered, "a", 2, 1),
      r1(f.registered, "a", 2, 1);
  f.table.Cancel(early.call);  // before it came
  f.table.Join(early.call);
  CHECK(early.Reason() == ErrorReason::kCancelled);
  f.table.Join(gone.call);
  f.table.Cancel(gone.call);
  f.table.Cancel(gone.call);
  CHECK(gone.Reason() == ErrorReason::kCancelled);
  CHECK(gone.answers() == 1);
  f.table.Join(r0.call);  // another offer is no conflict any more
  f.table.Join(r1.call);
  f.table.Cancel(r1.call);  // after it was answered
  CHECK(r0.Offer() == "id");
  CHECK(r1.Offer() == "id");
  CHECK(r1.answers() == 1);
}

TEST_CASE("Rendezvous: a repeat takes the seat, another offer does not",
          "[server][rendezvous]") {
  Fixture f;
  TestCall first(f.registered, "a", 2, 0, "id"),
      same(f.registered, "a", 2, 0, "id"),
      different(f.registered, "a", 2, 0, "other"),
      larger(f.registered, "a", 3, 1), r1(f.registered, "a", 2, 1);
  f.table.Join(first.call);
  f.table.Join(same.call);
  CHECK(first.Reason() == ErrorReason::kCancelled);
  f.table.Cancel(first.call);  // must not touch its successor
  f.table.Join(different.call);
  const absl::Status conflict = different.Status();
  CHECK(ReasonOf(conflict) == ErrorReason::kRendezvousConflict);
  CHECK(GetErrorDetail(conflict)->field == "offer");
  f.table.Join(larger.call);
  const absl::Status size = larger.Status();
  CHECK(ReasonOf(size) == ErrorReason::kRendezvousConflict);
  CHECK_THAT(std::string(size.message()),
             Catch::Contains("is 3") && Catch::Contains("for 2 ranks"));
  CHECK(same.answers() == 0);
  f.table.Join(r1.call);
  CHECK(same.Offer() == "id");
  CHECK(r1.Offer() == "id");
}

TEST_CASE("Rendezvous: a job that ends, and a drain, end the waits",
          "[server][rendezvous]") {
  Fixture f;
  const auto other_job = f.Register("other");
  TestCall a(f.registered, "a", 2, 0, "id"), b(f.registered, "b", 2, 1),
      other(other_job, "a", 2, 1), late(f.registered, "a", 2, 1),
      drained(other_job, "a", 2, 0, "id");
  for (TestCall* call : {&a, &b, &other}) f.table.Join(call->call);
  REQUIRE(f.jobs.Delete("run", 0).ok());
  CHECK(a.Reason() == ErrorReason::kJobNotFound);
  CHECK(b.Reason() == ErrorReason::kJobNotFound);
  f.table.Join(late.call);
  CHECK(late.Reason() == ErrorReason::kJobNotFound);
  CHECK(other.answers() == 0);
  f.table.Drain();
  CHECK(other.Reason() == ErrorReason::kDraining);
  f.table.Join(drained.call);
  CHECK(drained.Reason() == ErrorReason::kDraining);
}

TEST_CASE("Rendezvous: refuses what exceeds its limits, and only that",
          "[server][rendezvous]") {
  Fixture f({.max_waits = 4, .max_meetings_per_job = 2});
  const auto other_job = f.Register("other");
  TestCall a(f.registered, "a", 3, 0, "id"), b(f.registered, "b", 3, 1),
      key(f.registered, "c", 3, 1), other(other_job, "c", 3, 1),
      a1(f.registered, "a", 3, 1), wait(f.registered, "a", 3, 2),
      again(f.registered, "a", 3, 1);
  f.table.Join(a.call);
  f.table.Join(b.call);
  f.table.Join(key.call);
  const absl::Status too_many_keys = key.Status();
  CHECK(ReasonOf(too_many_keys) == ErrorReason::kLimitExceeded);
  CHECK(GetErrorDetail(too_many_keys)->limit == 2);
  f.table.Join(other.call);
  f.table.Join(a1.call);
  f.table.Join(wait.call);
  const absl::Status too_many_calls = wait.Status();
  CHECK(ReasonOf(too_many_calls) == ErrorReason::kLimitExceeded);
  CHECK(GetErrorDetail(too_many_calls)->limit == 4);
  f.table.Join(again.call);  // needs no new seat
  CHECK(a1.Reason() == ErrorReason::kCancelled);
  CHECK(again.answers() == 0);
  f.table.Cancel(b.call);  // its meeting is gone, and its place free
  TestCall c(f.registered, "c", 1, 0, "id");
  f.table.Join(c.call);
  CHECK(c.Offer() == "id");
}

TEST_CASE("Rendezvous: under many threads a round is for all or none",
          "[server][rendezvous]") {
  constexpr int32_t kRanks = 8;
  constexpr int kRounds = 200;
  Fixture f;
  int met = 0;
  for (int round = 0; round < kRounds; ++round) {
    INFO("round " << round);
    const std::string offer = std::to_string(round);
    const auto deadline = steady_clock::now() + milliseconds(round % 3);
    std::vector<std::unique_ptr<TestCall>> calls;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      calls.push_back(std::make_unique<TestCall>(
          f.registered, "round-" + offer, kRanks, rank, rank == 0 ? offer : "",
          round % 2 == 0 ? steady_clock::time_point::max() : deadline));
    }
    {
      std::vector<std::jthread> threads;
      for (int32_t rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
          std::minstd_rand random(
              static_cast<uint32_t>(round * kRanks + rank + 1));
          for (auto spins = random() % 1000; spins > 0; --spins) {
            std::this_thread::yield();
          }
          f.table.Join(calls[static_cast<size_t>(rank)]->call);
        });
      }
    }
    // What came after others had timed out waits on, alone: let it go.
    for (const auto& call : calls) f.table.Cancel(call->call);
    int got = 0;
    for (const auto& call : calls) {
      if (call->Offer() == offer) ++got;
      CHECK(call->answers() == 1);
    }
    CHECK((got == 0 || got == kRanks));
    if (round % 2 == 0) CHECK(got == kRanks);
    if (got == kRanks) ++met;
  }
  CHECK(met >= kRounds / 2);
}

}  // namespace
}  // namespace skrull
