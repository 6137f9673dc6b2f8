// A fault at any call of any part: no rank stays stuck, and each reports it.
#include <catch2/catch.hpp>
#include <chrono>
#include <random>

#include "skrull/tests/cuda/faults.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

// Two blocks, local sequences, and a rank without rows in a block.
TestPlan SmallPlan() {
  return {.ranks = 3,
          .micro_batches = {{{0, 5, 0, 1},
                             {1, 4, 2, 1},
                             {2, 13, 0, 3},
                             {3, 2, 0, 3},
                             {4, 6, 0, 2},
                             {5, 3, 0, 1}}}};
}

struct FaultyRun {
  RunResult result;
  int calls = 0;  // of the faulty rank
};

FaultyRun RunWithFault(Exchange exchange, int32_t faulty_rank, int at,
                       Fault::Kind kind) {
  const TestPlan plan = SmallPlan();
  std::mt19937_64 random(3);
  RunOptions options;
  options.executor.problem = {.dtype = DType::kFloat64,
                              .q_heads = 2,
                              .kv_heads = 1,
                              .head_dim = 3,
                              .scale = 0.5};
  options.executor.exchange = exchange;
  // Far more than a run takes; a rank that gets stuck reports it as its
  // failure.
  options.pool.time_limit = std::chrono::seconds(120);
  const auto data = RandomData(&random, options.executor.problem, plan);
  Fault fault(at, kind);
  std::unique_ptr<FaultyParts> faulty;
  options.change_parts = [&](int32_t rank, RankParts* parts) {
    if (rank != faulty_rank) return;
    faulty = std::make_unique<FaultyParts>(*parts, &fault);
    *parts = faulty->parts();
  };
  FaultyRun run{.result = RunPlan(plan, data, options)};
  run.calls = fault.calls();
  if (at < 0) {
    const Errors errors =
        CompareWithDense(plan, data, options.executor.problem, run.result);
    CHECK(errors.worst() < 1e-10);
  }
  return run;
}

void CheckFaults(Exchange exchange, Fault::Kind kind) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    const FaultyRun healthy = RunWithFault(exchange, rank, -1, kind);
    for (const Status& status : healthy.result.statuses) REQUIRE(status.ok());
    REQUIRE(healthy.calls > 20);
    // Every third call, each at one of the ranks.
    for (int at = rank; at < healthy.calls; at += 3) {
      INFO("rank " << rank << ", call " << at << " of " << healthy.calls);
      const RunResult result = RunWithFault(exchange, rank, at, kind).result;
      CheckFaultIsReported(static_cast<size_t>(rank), result.statuses,
                           result.statuses_after);
    }
  }
}

}  // namespace

TEST_CASE("Executor: a fault anywhere reaches every rank",
          "[executor][fault]") {
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
