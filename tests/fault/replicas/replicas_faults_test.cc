// Ranks over all replicas, racing each other with different lengths, while
// replicas and etcd die and come back: of a step there is one plan.
#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <functional>
#include <iostream>
#include <set>
#include <thread>
#include <vector>

#include "skrull/tests/fault/replicas/replicas.h"

namespace skrull::testing {
namespace {

constexpr int kRanks = 6;

// What one rank got for one step: the bytes of a plan, or why there was none.
struct Answer {
  std::string plan;
  std::string digest;  // of its share
  absl::Status refusal;
};

// Ranks that plan step after step, each through all replicas, in lockstep, so
// that each step is a race. Half of them ask for other lengths than the rest.
class Ranks {
 public:
  explicit Ranks(const std::string& addresses) : addresses_(addresses) {
    answers_.resize(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      threads_.emplace_back([this, rank] { Run(rank); });
    }
  }
  ~Ranks() { Stop(); }

  // Returns once `count` more steps were planned.
  void WaitSteps(int64_t count) {
    const int64_t until = step_.load() + count;
    for (int64_t step = step_.load(); step < until; step = step_.load()) {
      step_.wait(step);
    }
  }
  void Stop() {
    stopping_ = true;
    threads_.clear();  // joins
  }

  // After Stop. By rank and step.
  const std::vector<std::vector<Answer>>& answers() const { return answers_; }

 private:
  void Run(int rank) {
    const auto client = ClientOf(addresses_);
    std::vector<Answer>& mine = answers_[static_cast<size_t>(rank)];
    // All see the same value: it is written where all have arrived.
    while (!stop_now_) {
      const auto step = static_cast<int64_t>(mine.size());
      Answer answer;
      const auto plan = client->PlanBatch(
          {.job = kJob, .step = step, .lengths = LengthsOf(step, rank % 2)});
      if (plan.ok()) answer.plan = plan->plan_bytes;
      answer.refusal = plan.status();
      const auto share =
          client->GetRankPlan({.job = kJob, .step = step, .rank = rank});
      if (share.ok()) answer.digest = share->digest;
      mine.push_back(answer);
      arrived_.arrive_and_wait();
    }
  }
  void EndStep() noexcept {
    stop_now_ = stopping_.load();
    ++step_;
    step_.notify_all();
  }

  const std::string addresses_;
  std::vector<std::vector<Answer>> answers_;
  std::atomic<int64_t> step_ = 0;
  std::atomic<bool> stopping_ = false;
  bool stop_now_ = false;
  std::barrier<std::function<void()>> arrived_{
      kRanks, std::function<void()>([this] { EndStep(); })};
  std::vector<std::jthread> threads_;
};

struct Counts {
  int64_t planned = 0;
  int64_t conflicts = 0;
  int64_t failed = 0;
};

// Whether all ranks had one plan of each step, and what else they were told.
Counts Check(const Ranks& ranks) {
  Counts counts;
  const size_t steps = ranks.answers()[0].size();
  for (size_t step = 0; step < steps; ++step) {
    std::set<std::string> plans;
    std::set<std::string> digests;
    for (const std::vector<Answer>& mine : ranks.answers()) {
      const Answer& answer = mine[step];
      if (!answer.digest.empty()) digests.insert(answer.digest);
      if (answer.refusal.ok()) {
        plans.insert(answer.plan);
        ++counts.planned;
      } else if (RefusalOf(answer.refusal) == "PLAN_CONFLICT") {
        ++counts.conflicts;
      } else {
        CAPTURE(answer.refusal);
        CHECK((absl::IsUnavailable(answer.refusal) ||
               absl::IsDeadlineExceeded(answer.refusal)));
        ++counts.failed;
      }
    }
    CAPTURE(step);
    CHECK(plans.size() <= 1);
    CHECK(digests.size() <= 1);
    for (const std::string& plan : plans) {
      const auto number = static_cast<int64_t>(step);
      CHECK(
          (plan == PlanBytes(0, number, 0) || plan == PlanBytes(0, number, 1)));
    }
  }
  std::cout << steps << " steps, " << counts.planned << " plans, "
            << counts.conflicts << " conflicts, " << counts.failed
            << " failed calls\n";
  return counts;
}

TEST_CASE("Replicas: no call fails while one of three is killed under load",
          "[fault][replicas]") {
  Replicas replicas;
  Ranks ranks(replicas.addresses());
  ranks.WaitSteps(3);
  for (int replica = 0; replica < Replicas::kCount; ++replica) {
    replicas.Kill(replica);
    ranks.WaitSteps(3);
    replicas.Start(replica);
    ranks.WaitSteps(1);
  }
  ranks.Stop();
  const Counts counts = Check(ranks);
  CHECK(counts.failed == 0);
  CHECK(counts.planned > 0);
  CHECK(counts.conflicts > 0);
}

TEST_CASE("Replicas: an etcd that hangs or dies costs time and no agreement",
          "[fault][replicas]") {
  Replicas replicas;
  Ranks ranks(replicas.addresses());
  ranks.WaitSteps(2);
  for (int round = 0; round < 2; ++round) {
    replicas.etcd().Freeze(0);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // it hangs
    replicas.Kill(round);
    replicas.etcd().Thaw(0);
    replicas.Start(round);
    ranks.WaitSteps(2);
    replicas.etcd().Kill(0);
    replicas.etcd().Start(0);
    ranks.WaitSteps(2);
  }
  ranks.Stop();
  const Counts counts = Check(ranks);
  CHECK(counts.planned > 0);
  // What was answered is there for every daemon, those that started anew too.
  for (int replica = 0; replica < Replicas::kCount; ++replica) {
    const auto client = ClientOf(replicas.address(replica));
    const size_t steps = ranks.answers()[0].size();
    for (size_t step = 0; step < steps; ++step) {
      for (size_t rank = 0; rank < 2; ++rank) {
        const Answer& answer = ranks.answers()[rank][step];
        if (!answer.refusal.ok()) continue;
        const auto number = static_cast<int64_t>(step);
        const auto plan = client->PlanBatch(
            {.job = kJob,
             .step = number,
             .lengths = LengthsOf(number, static_cast<int>(rank))});
        INFO(plan.status());
        REQUIRE(plan.ok());
        CHECK(plan->plan_bytes == answer.plan);
      }
    }
  }
}

}  // namespace
}  // namespace skrull::testing
