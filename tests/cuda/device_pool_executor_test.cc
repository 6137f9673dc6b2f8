// The unchanged executor on virtual ranks of one device, against dense
// attention; and a fault at any call, which leaves nobody stuck.
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/tests/cuda/faults.h"
#include "skrull/tests/cuda/random_order_device.h"
#include "skrull/tests/cuda/shared_device.h"

namespace skrull::exec::testing {
namespace {

AttentionProblem SmallProblem() {
  return {.dtype = DType::kFloat64,
          .q_heads = 2,
          .kv_heads = 1,
          .head_dim = 4,
          .scale = 0.5};
}

// Sequences over all ranks, over each half, and local ones.
TestPlan PlanFor(int32_t ranks) {
  const int32_t half = ranks / 2;
  return {.ranks = ranks,
          .micro_batches = {{{0, 5, 0, 1},
                             {1, 41, 0, ranks},
                             {2, 9, ranks - 1, 1},
                             {3, 3, 0, ranks},
                             {4, 12, 0, half},
                             {5, 17, half, half}},
                            {{6, 25, 0, ranks}, {7, 7, 1, 1}}}};
}

bool AllOk(const RunResult& result) {
  for (const Status& status : result.statuses) {
    UNSCOPED_INFO(status.ToString());
    if (!status.ok()) return false;
  }
  return true;
}

void CheckRanks(int32_t ranks, Exchange exchange) {
  CAPTURE(ranks);
  const TestPlan plan = PlanFor(ranks);
  std::mt19937_64 random(static_cast<uint64_t>(ranks));
  RunOptions options;
  options.executor.problem = SmallProblem();
  options.executor.exchange = exchange;
  options.layers = 2;
  const auto data =
      RandomData(&random, options.executor.problem, plan, options.layers);
  const RunResult want = RunPlan(plan, data, options);
  REQUIRE(AllOk(want));

  CpuDevice cpu({.poison_buffers = true});
  const RunResult threads = RunPlanOnOneDevice(plan, data, options, &cpu);
  REQUIRE(AllOk(threads));
  CHECK(
      CompareWithDense(plan, data, options.executor.problem, threads).worst() <
      1e-10);
  // The sums are those of the pool of the host.
  CHECK(SameBits(threads, want));
  for (uint64_t seed = 0; seed < 5; ++seed) {
    INFO("seed " << seed);
    RandomOrderDevice device(seed);
    const RunResult got = RunPlanOnOneDevice(plan, data, options, &device);
    REQUIRE(AllOk(got));
    REQUIRE(SameBits(got, want));
  }
}

struct FaultyRun {
  RunResult result;
  int calls = 0;  // of the faulty rank
};

FaultyRun RunWithFault(Exchange exchange, int32_t faulty_rank, int at,
                       Fault::Kind kind) {
  const TestPlan plan{
      .ranks = 3,
      .micro_batches = {
          {{0, 5, 0, 1}, {1, 4, 2, 1}, {2, 13, 0, 3}, {3, 6, 0, 2}}}};
  std::mt19937_64 random(3);
  RunOptions options;
  options.executor.problem = SmallProblem();
  options.executor.exchange = exchange;
  options.pool.time_limit = std::chrono::seconds(120);
  const auto data = RandomData(&random, options.executor.problem, plan);
  Fault fault(at, kind);
  std::unique_ptr<FaultyParts> faulty;
  options.change_parts = [&](int32_t rank, RankParts* parts) {
    if (rank != faulty_rank) return;
    faulty = std::make_unique<FaultyParts>(*parts, &fault);
    *parts = faulty->parts();
  };
  CpuDevice device({.poison_buffers = true});
  FaultyRun run{.result = RunPlanOnOneDevice(plan, data, options, &device)};
  run.calls = fault.calls();
  return run;
}

void CheckFaults(Exchange exchange, Fault::Kind kind) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    const FaultyRun healthy = RunWithFault(exchange, rank, -1, kind);
    REQUIRE(AllOk(healthy.result));
    REQUIRE(healthy.calls > 20);
    for (int at = rank; at < healthy.calls; at += 3) {
      INFO("rank " << rank << ", call " << at << " of " << healthy.calls);
      const RunResult result = RunWithFault(exchange, rank, at, kind).result;
      if (kind == Fault::Kind::kAtOnce) {
        CheckFaultIsReported(static_cast<size_t>(rank), result.statuses,
                             result.statuses_after);
        continue;
      }
      // A failure of the one device is every rank's, or its call failed at
      // once.
      for (size_t r = 0; r < 3; ++r) {
        const Status& told = result.statuses_after[r].ok()
                                 ? result.statuses[r]
                                 : result.statuses_after[r];
        CAPTURE(r, told.ToString());
        CHECK_THAT(told.message(), Catch::Contains("a planted fault"));
      }
    }
  }
}

}  // namespace

TEST_CASE("Executor on one device: any number of ranks equals dense attention",
          "[executor][device_pool]") {
  for (int32_t ranks = 2; ranks <= 8; ++ranks) {
    CheckRanks(ranks, Exchange::kAllGather);
    CheckRanks(ranks, Exchange::kRing);
  }
}

TEST_CASE("Executor on one device: a fault anywhere reaches every rank",
          "[executor][device_pool][fault]") {
  SECTION("all-gather, at once") {
    CheckFaults(Exchange::kAllGather, Fault::Kind::kAtOnce);
  }
  SECTION("all-gather, later") {
    CheckFaults(Exchange::kAllGather, Fault::Kind::kLater);
  }
  SECTION("ring, at once") {
    CheckFaults(Exchange::kRing, Fault::Kind::kAtOnce);
  }
  SECTION("ring, later") { CheckFaults(Exchange::kRing, Fault::Kind::kLater); }
}

}  // namespace skrull::exec::testing
