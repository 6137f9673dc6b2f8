// The executor against dense attention: random plans, both exchanges.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

AttentionProblem RandomProblem(std::mt19937_64* random, DType dtype) {
  const int32_t groups[] = {1, 2, 7};
  AttentionProblem problem;
  problem.dtype = dtype;
  problem.kv_heads = 1 + static_cast<int32_t>((*random)() % 2);
  problem.q_heads = problem.kv_heads * groups[(*random)() % 3];
  problem.head_dim = 3 + static_cast<int32_t>((*random)() % 7);
  problem.scale = 1 / std::sqrt(problem.head_dim);
  return problem;
}

void RequireOk(const RunResult& result) {
  for (const Status& status : result.statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
}

void RequireGapsUntouched(const RunResult& result) {
  for (const auto& mb : result.tensors) {
    for (const RankTensors& t : mb) {
      for (const HostTensor* tensor :
           {&t.q, &t.k, &t.v, &t.d_o, &t.o, &t.lse, &t.dq, &t.dk, &t.dv}) {
        REQUIRE(tensor->GapsAreUntouched());
      }
    }
  }
}

void CheckRandomPlans(Exchange exchange, uint64_t first_seed, int trials) {
  for (int trial = 0; trial < trials; ++trial) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(trial);
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    RunOptions options;
    options.executor.problem = RandomProblem(&random, DType::kFloat64);
    options.executor.exchange = exchange;
    options.gap = static_cast<int32_t>(random() % 3);
    options.head_major_lse = random() % 2 == 0;
    options.layers = 1 + static_cast<int32_t>(random() % 2);
    options.backend_threads = 1 + static_cast<int>(random() % 3);
    const TestPlan plan = RandomPlan(&random, 16);
    const std::vector<SequenceData> data =
        RandomData(&random, options.executor.problem, plan, options.layers);
    const RunResult result = RunPlan(plan, data, options);
    RequireOk(result);
    RequireGapsUntouched(result);
    const Errors errors =
        CompareWithDense(plan, data, options.executor.problem, result);
    CHECK(errors.o < 1e-10);
    CHECK(errors.lse < 1e-10);
    CHECK(errors.dq < 1e-10);
    CHECK(errors.dk < 1e-10);
    CHECK(errors.dv < 1e-10);
  }
}

}  // namespace

TEST_CASE("Executor: an all-gather equals dense attention", "[executor]") {
  CheckRandomPlans(Exchange::kAllGather, 1000, 60);
}

TEST_CASE("Executor: a ring equals dense attention", "[executor]") {
  CheckRandomPlans(Exchange::kRing, 1000, 60);
}

}  // namespace skrull::exec::testing
