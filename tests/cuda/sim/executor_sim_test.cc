// The unchanged executor with the CUDA row kernels, against dense attention.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <random>

#include "skrull/cuda/sim/launch.h"
#include "skrull/tests/cuda/rank_pool.h"
#include "skrull/tests/cuda/shared_device.h"
#include "skrull/tests/cuda/sim/sim_device.h"

namespace skrull::exec::testing {
namespace {

// Runs the plan on the host's kernels and on CUDA's: the same bits.
void CheckPlan(uint64_t seed, Exchange exchange, DType dtype,
               double tolerance) {
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  sim::SetOrderSeed(seed);
  RunOptions options;
  options.executor.problem = {.dtype = dtype,
                              .q_heads = 4,
                              .kv_heads = 2,
                              .head_dim = seed % 2 == 0 ? 8 : 5,
                              .scale = 0.4};
  options.executor.exchange = exchange;
  options.gap = static_cast<int32_t>(random() % 3) * 4;
  options.head_major_lse = random() % 2 == 0;
  const TestPlan plan = RandomPlan(&random, 4, 2e4);
  const auto data = RandomData(&random, options.executor.problem, plan);
  const RunResult host = RunPlan(plan, data, options);
  options.new_device = [](int32_t) { return std::make_unique<SimDevice>(); };
  const RunResult got = RunPlan(plan, data, options);
  for (const Status& status : got.statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  CHECK(CompareWithDense(plan, data, options.executor.problem, got).worst() <
        tolerance);
  CHECK(SameBits(got, host));
}

}  // namespace

TEST_CASE("Executor over CUDA's row kernels: an all-gather",
          "[executor][kernels]") {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    CheckPlan(seed, Exchange::kAllGather, DType::kFloat64, 1e-10);
  }
}

TEST_CASE("Executor over CUDA's row kernels: a ring", "[executor][kernels]") {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    CheckPlan(seed, Exchange::kRing, DType::kFloat64, 1e-10);
  }
}

// The tolerance is that of executor_test.cc's 16-bit cases.
TEST_CASE("Executor over CUDA's row kernels: bfloat16", "[executor][kernels]") {
  for (const Exchange exchange : {Exchange::kAllGather, Exchange::kRing}) {
    CheckPlan(100, exchange, DType::kBFloat16, 1.5e-2);
  }
}

// The exchange is CUDA's kernels, too: sums, by way of a pool on one device.
TEST_CASE("Executor over CUDA's kernels: virtual ranks on one device",
          "[executor][kernels]") {
  for (int32_t ranks = 2; ranks <= 8; ++ranks) {
    for (const Exchange exchange : {Exchange::kAllGather, Exchange::kRing}) {
      CAPTURE(ranks);
      const TestPlan plan{.ranks = ranks,
                          .micro_batches = {{{0, 37, 0, ranks},
                                             {1, 6, ranks - 1, 1},
                                             {2, 11, ranks - 2, 2}}}};
      std::mt19937_64 random(static_cast<uint64_t>(ranks));
      sim::SetOrderSeed(random());
      RunOptions options;
      options.executor.problem = {.dtype = DType::kFloat32,
                                  .q_heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 8,
                                  .scale = 0.4};
      options.executor.exchange = exchange;
      const auto data = RandomData(&random, options.executor.problem, plan);
      const RunResult host = RunPlan(plan, data, options);
      SimDevice device;
      const RunResult got = RunPlanOnOneDevice(plan, data, options, &device);
      for (const Status& status : got.statuses) {
        INFO(status.ToString());
        REQUIRE(status.ok());
      }
      // 37 keys and a group of 2 heads: as executor_test.cc derives it.
      CHECK(
          CompareWithDense(plan, data, options.executor.problem, got).worst() <
          8 * (37.0 * 2 + 8) * 0x1p-24);
      CHECK(SameBits(got, host));
    }
  }
}

}  // namespace skrull::exec::testing
