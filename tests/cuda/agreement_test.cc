// One rank holds another plan: every rank raises before any exchange.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/executor.h"
#include "skrull/cuda/gathered_agreement.h"
#include "skrull/cuda/in_process/in_process_pool.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

constexpr int32_t kRanks = 4;

std::string DigestOf(char digit) { return std::string(64, digit); }

// Counts what an executor asks of its communicators.
class CountingSet final : public CommunicatorSet {
 public:
  CountingSet(CommunicatorSet* set, std::atomic<int>* calls)
      : set_(set), calls_(calls) {}
  int32_t rank() const override { return set_->rank(); }
  int32_t size() const override { return set_->size(); }
  Status Announce(std::span<const Block> blocks) override {
    ++*calls_;
    return set_->Announce(blocks);
  }
  Result<Communicator*> Find(Block block) override {
    ++*calls_;
    return set_->Find(block);
  }
  Status Poll() override { return set_->Poll(); }
  void Abort(const Status& cause) noexcept override { set_->Abort(cause); }

 private:
  CommunicatorSet* const set_;
  std::atomic<int>* const calls_;
};

RankPlan PlanOf(int32_t rank, char digit) {
  // Another digest is another plan: other sequences, other blocks.
  const TestPlan plan{
      .ranks = kRanks,
      .micro_batches = {digit == 'a' ? Placements{{0, 9, 0, 4}, {1, 5, 1, 1}}
                                     : Placements{{0, 9, 0, 2}, {1, 8, 2, 2}}}};
  RankPlan mine = plan.ForRank(rank);
  mine.digest = digit == 0 ? "" : DigestOf(digit);
  return mine;
}

// What each rank's Prepare returns, one element a step and rank.
using Statuses = std::vector<std::vector<Status>>;
using PlansOfRank = std::function<std::vector<RankPlan>(int32_t rank)>;

struct Outcome {
  Statuses statuses;
  std::vector<int> calls;  // to communicators, after each step, of all ranks
};

// Every rank prepares its plans one after another.
Outcome PrepareAll(bool gathered, const PlansOfRank& plans_of) {
  InProcessPool pool(kRanks, {.time_limit = std::chrono::seconds(120)});
  const auto backend = CreateCpuAttention(1);
  std::atomic<int> calls = 0;
  const size_t steps = plans_of(0).size();
  Outcome outcome;
  outcome.statuses.assign(steps, std::vector<Status>(kRanks));
  std::vector<std::unique_ptr<CpuDevice>> devices;
  std::vector<std::unique_ptr<CountingSet>> sets;
  std::vector<std::unique_ptr<StepAgreement>> own;
  std::vector<std::unique_ptr<Executor>> executors;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    devices.push_back(std::make_unique<CpuDevice>());
    sets.push_back(
        std::make_unique<CountingSet>(pool.communicators(rank), &calls));
    StepAgreement* agreement = pool.agreement(rank);
    if (gathered) {
      auto gather =
          AllGatherOverPool(devices.back().get(), pool.communicators(rank),
                            std::chrono::seconds(120));
      REQUIRE(gather.ok());
      own.push_back(std::make_unique<GatheredAgreement>(kRanks, *gather));
      agreement = own.back().get();
    }
    ExecutorOptions options;
    options.problem = {.dtype = DType::kFloat32,
                       .q_heads = 1,
                       .kv_heads = 1,
                       .head_dim = 2,
                       .scale = 1};
    auto executor =
        Executor::Create(options, {.device = devices.back().get(),
                                   .backend = backend->get(),
                                   .communicators = sets.back().get(),
                                   .agreement = agreement});
    REQUIRE(executor.ok());
    executors.push_back(*std::move(executor));
  }
  for (size_t step = 0; step < steps; ++step) {
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto r = static_cast<size_t>(rank);
        outcome.statuses[step][r] =
            executors[r]->Prepare(plans_of(rank)[step]).status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    outcome.calls.push_back(calls);
  }
  return outcome;
}

}  // namespace

TEST_CASE("Executor: every rank raises if one holds another plan",
          "[executor][agreement]") {
  const bool gathered = GENERATE(false, true);
  // Another plan, or none at all.
  const char other = GENERATE('b', '\0');
  INFO("gathered " << gathered << ", other plan " << int{other});
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = PrepareAll(gathered, [&](int32_t rank) {
    return std::vector<RankPlan>{PlanOf(rank, rank == 2 ? other : 'a'),
                                 PlanOf(rank, 'a')};
  });
  for (const Status& status : outcome.statuses[0]) {
    INFO(status.ToString());
    CHECK(status.code() == StatusCode::kFailedPrecondition);
    CHECK(status == outcome.statuses[0][0]);
    CHECK_THAT(status.message(), Catch::Contains("rank 2"));
  }
  // Nothing was asked of any communicator, let alone an exchange.
  CHECK(outcome.calls[0] == 0);
  // The executors work on: the next step has one plan.
  for (const Status& status : outcome.statuses[1]) {
    INFO(status.ToString());
    CHECK(status.ok());
  }
  CHECK(outcome.calls[1] > 0);
  // Not by a time-out of 120 s.
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
}

TEST_CASE("Executor: a plan of another rank reaches every rank",
          "[executor][agreement]") {
  const bool gathered = GENERATE(false, true);
  const Outcome outcome = PrepareAll(gathered, [&](int32_t rank) {
    return std::vector<RankPlan>{PlanOf(rank == 2 ? 1 : rank, 'a')};
  });
  for (size_t r = 0; r < kRanks; ++r) {
    const Status& status = outcome.statuses[0][r];
    INFO(status.ToString());
    CHECK(status.code() ==
          (r == 2 ? StatusCode::kInvalidArgument : StatusCode::kAborted));
    CHECK_THAT(status.message(), Catch::Contains("rank 2"));
  }
  CHECK(outcome.calls[0] == 0);
}

TEST_CASE("CompareDigests: names the minority", "[agreement]") {
  const DigestBytes a = *ParseDigest(DigestOf('a'));
  const DigestBytes b = *ParseDigest(DigestOf('B'));
  const DigestBytes none = {};
  const auto compare = [](std::vector<DigestBytes> all) {
    return CompareDigests(all).message();
  };
  CHECK(compare({a}).empty());
  CHECK(compare({a, a, a}).empty());
  CHECK_THAT(compare({a, b, b}),
             Catch::Contains("1 of 3") && Catch::EndsWith("at rank 0"));
  // Of two that are as common the lowest rank's counts as right.
  CHECK_THAT(compare({b, a, a, b}), Catch::EndsWith("at rank 1, 2"));
  CHECK_THAT(compare({a, none}), Catch::EndsWith("at rank 1 (no plan)"));
  CHECK_THAT(compare({none, none, a}), Catch::Contains("to have none"));
}

TEST_CASE("GatheredAgreement: what is no digest is gathered and refused",
          "[agreement]") {
  int gathers = 0;
  Status failure;
  GatheredAgreement agreement(
      2, [&](const DigestBytes& mine, std::span<DigestBytes> all) {
        ++gathers;
        for (DigestBytes& digest : all) digest = mine;
        return failure;
      });
  CHECK(agreement.Agree(DigestOf('a')).ok());
  CHECK(agreement.Agree("").code() == StatusCode::kInvalidArgument);
  CHECK(agreement.Agree("xyz").code() == StatusCode::kInvalidArgument);
  CHECK(agreement.Agree(DigestOf('g')).code() == StatusCode::kInvalidArgument);
  failure = {StatusCode::kCommFailed, "cable"};
  CHECK(agreement.Agree(DigestOf('a')) == failure);
  CHECK(gathers == 5);
}

TEST_CASE("AllGatherOverPool: a rank that stays away ends the wait",
          "[agreement]") {
  InProcessPool pool(2, {.time_limit = std::chrono::seconds(120)});
  std::vector<Status> statuses(2);
  std::vector<std::thread> threads;
  const auto begin = std::chrono::steady_clock::now();
  for (int32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      CpuDevice device;
      auto gather = AllGatherOverPool(&device, pool.communicators(rank),
                                      std::chrono::seconds(3));
      GatheredAgreement agreement(2, *gather);
      Status status = agreement.Agree(DigestOf('a'));
      // Rank 1 comes to the first step alone.
      if (status.ok() && rank == 0) status = agreement.Agree(DigestOf('a'));
      statuses[static_cast<size_t>(rank)] = status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(statuses[0].code() == StatusCode::kDeadlineExceeded);
  CHECK(statuses[1].ok());
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
}

}  // namespace skrull::exec::testing
