// The executor's events: whatever order the streams run in, the bits are the
// same, and each event is needed.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "skrull/tests/cuda/random_order_device.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

AttentionProblem SmallProblem() {
  return {.dtype = DType::kFloat64,
          .q_heads = 2,
          .kv_heads = 1,
          .head_dim = 4,
          .scale = 0.5};
}

// Two micro-batches; three blocks that overlap, and local sequences.
TestPlan OverlappingBlocks() {
  return {.ranks = 4,
          .micro_batches = {{{0, 9, 0, 1},
                             {1, 33, 0, 4},
                             {2, 7, 2, 2},
                             {3, 6, 1, 1},
                             {4, 21, 0, 2},
                             {5, 2, 0, 4},
                             {6, 12, 0, 1}},
                            {{7, 30, 0, 4}, {8, 11, 2, 2}}}};
}

bool AllOk(const RunResult& result) {
  for (const Status& status : result.statuses) {
    if (!status.ok()) return false;
  }
  return true;
}

void CheckOrders(Exchange exchange) {
  const TestPlan plan = OverlappingBlocks();
  std::mt19937_64 random(7);
  RunOptions options;
  options.executor.problem = SmallProblem();
  options.executor.exchange = exchange;
  options.layers = 2;
  const auto data =
      RandomData(&random, options.executor.problem, plan, options.layers);
  const RunResult want = RunPlan(plan, data, options);
  REQUIRE(AllOk(want));
  REQUIRE(CompareWithDense(plan, data, options.executor.problem, want).worst() <
          1e-10);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    options.new_device = [&](int32_t rank) {
      return std::make_unique<RandomOrderDevice>(100 * seed +
                                                 static_cast<uint64_t>(rank));
    };
    const RunResult got = RunPlan(plan, data, options);
    REQUIRE(AllOk(got));
    REQUIRE(SameBits(got, want));
  }
}

// For each of rank 0's last `count` calls of Device::Wait, in order: do the
// results change, in some order of the ready work, if it has no effect? Only
// rank 0's order is disturbed, and that follows from the seed, so the answer is
// always the same.
std::vector<bool> NeededWaits(Exchange exchange, int count) {
  const TestPlan plan = OverlappingBlocks();
  std::mt19937_64 random(7);
  RunOptions options;
  options.executor.problem = SmallProblem();
  options.executor.exchange = exchange;
  options.layers = 2;
  const auto data =
      RandomData(&random, options.executor.problem, plan, options.layers);
  const RunResult want = RunPlan(plan, data, options);
  int waits = 0;
  const auto is_noticed = [&](int dropped, uint64_t seed) {
    options.new_device = [&](int32_t rank) -> std::unique_ptr<Device> {
      auto device =
          std::make_unique<RandomOrderDevice>(seed, rank == 0 ? dropped : -1);
      if (rank == 0) device->CountWaitsIn(&waits);
      return device;
    };
    const RunResult got = RunPlan(plan, data, options);
    return !AllOk(got) || !SameBits(got, want);
  };
  REQUIRE_FALSE(is_noticed(-1, 0));
  REQUIRE(waits > count);
  std::vector<bool> needed(static_cast<size_t>(count));
  const int first = waits - count;
  for (size_t i = 0; i < needed.size(); ++i) {
    for (uint64_t seed = 0; seed < 25 && !needed[i]; ++seed) {
      needed[i] = is_noticed(first + static_cast<int>(i), seed);
    }
  }
  return needed;
}

}  // namespace

TEST_CASE("Executor: the order of ready work does not matter",
          "[executor][order]") {
  SECTION("all-gather") { CheckOrders(Exchange::kAllGather); }
  SECTION("ring") { CheckOrders(Exchange::kRing); }
}

// The search above would find a missing dependency.
TEST_CASE("Executor: its waits are needed", "[executor][order]") {
  SECTION("all-gather") {
    // The last call: for the call before, which is done by then; for the packed
    // rows of two blocks; for the gathered ones; for the folded ones of two
    // blocks; for the sums.
    CHECK(NeededWaits(Exchange::kAllGather, 7) ==
          std::vector<bool>{false, true, true, true, true, true, true});
  }
  SECTION("ring") {
    // The last call. Each step's shift of keys follows the last one's shift of
    // sums, which follows the use of the keys that it overwrites: its own wait
    // adds nothing but in step 0.
    CHECK(NeededWaits(Exchange::kRing, 16) ==
          std::vector<bool>{false,                    // the call before
                            true, true,               // step 0
                            true, false, true, true,  // step 1
                            true, false, true, true,  // step 2
                            true, false, true, true,  // step 3
                            true});                   // sums are home
  }
}

}  // namespace skrull::exec::testing
