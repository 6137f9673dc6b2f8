// The unchanged executor with the cuda backend, whose kernels run on the CPU:
// ranks against dense attention.
#include <catch2/catch.hpp>
#include <cstdint>
#include <random>

#include "skrull/cuda/attention/cuda/cuda_attention.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

// Mixed micro-batches: local sequences beside sharded ones, of which some have
// chunks of a few tokens or none.
TestPlan MixedPlan(int32_t ranks) {
  return {
      .ranks = ranks,
      .micro_batches = {
          {{0, 150, 0, ranks}, {1, 30, 1, 1}, {2, 3, 0, ranks}, {3, 70, 0, 1}},
          {{4, 1, 0, ranks}, {5, 17, ranks - 1, 1}}}};
}

void CheckPlan(Exchange exchange, DType dtype, int32_t head_dim, int32_t ranks,
               double bound) {
  INFO("ranks " << ranks << ", dim " << head_dim);
  CudaAttention backend(MemoryKind::kHost);
  RunOptions options;
  options.executor.problem = {.dtype = dtype,
                              .q_heads = 2,
                              .kv_heads = 1,
                              .head_dim = head_dim,
                              .scale = head_dim == 64 ? 0.125 : 0.0884};
  options.executor.exchange = exchange;
  options.gap = 8;
  options.head_major_lse = head_dim == 64;
  options.change_parts = [&](int32_t, RankParts* parts) {
    parts->backend = &backend;
  };
  const TestPlan plan = MixedPlan(ranks);
  std::mt19937_64 random(static_cast<uint64_t>(ranks));
  const auto data = RandomData(&random, options.executor.problem, plan);
  const RunResult result = RunPlan(plan, data, options);
  for (const Status& status : result.statuses) {
    REQUIRE(status.ToString() == "OK");
  }
  const Errors errors =
      CompareWithDense(plan, data, options.executor.problem, result);
  CHECK(errors.worst() < bound);
  CHECK(errors.lse < 1e-3);
  CHECK(SameBits(result, RunPlan(plan, data, options)));
}

}  // namespace

// The bounds are those of 16-bit executors with the cpu backend
// (executor_test.cc).
TEST_CASE("flash executor: an all-gather equals dense attention",
          "[flash][executor]") {
  CheckPlan(Exchange::kAllGather, DType::kBFloat16, 64, 2, 1.5e-2);
  CheckPlan(Exchange::kAllGather, DType::kFloat16, 128, 3, 3e-3);
}

TEST_CASE("flash executor: a ring equals dense attention",
          "[flash][executor]") {
  CheckPlan(Exchange::kRing, DType::kFloat16, 64, 2, 3e-3);
  CheckPlan(Exchange::kRing, DType::kBFloat16, 128, 3, 1.5e-2);
}

}  // namespace skrull::exec::testing
