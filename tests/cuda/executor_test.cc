// The executor against dense attention: random plans, both exchanges.
#include <catch2/catch.hpp>
#include <cmath>
#include <optional>
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
  CheckRandomPlans(Exchange::kAllGather, 1000, 40);
}

TEST_CASE("Executor: a ring equals dense attention", "[executor]") {
  CheckRandomPlans(Exchange::kRing, 1000, 40);
}

// The heads of the models that the paper trains.
TEST_CASE("Executor: heads of 64 and of 128", "[executor]") {
  const TestPlan plan{.ranks = 3,
                      .micro_batches = {{{0, 90, 0, 3}, {1, 70, 2, 1}}}};
  for (const Exchange exchange : {Exchange::kAllGather, Exchange::kRing}) {
    for (const int32_t head_dim : {64, 128}) {
      INFO("head_dim " << head_dim);
      std::mt19937_64 random(5);
      RunOptions options;
      options.executor.problem = {.dtype = DType::kFloat64,
                                  .q_heads = 7,
                                  .kv_heads = 1,
                                  .head_dim = head_dim,
                                  .scale = 1 / std::sqrt(head_dim)};
      options.executor.exchange = exchange;
      const AttentionProblem& p = options.executor.problem;
      const auto data = RandomData(&random, p, plan);
      const RunResult result = RunPlan(plan, data, options);
      RequireOk(result);
      CHECK(CompareWithDense(plan, data, p, result).worst() < 1e-10);
    }
  }
}

// Each value is a sum of at most `terms` products; each product and each
// partial sum carries an error of half a unit in the last place.
TEST_CASE("Executor: float32 within its rounding", "[executor]") {
  for (const Exchange exchange : {Exchange::kAllGather, Exchange::kRing}) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      INFO("seed " << seed);
      std::mt19937_64 random(seed);
      RunOptions options;
      options.executor.problem = RandomProblem(&random, DType::kFloat32);
      options.executor.exchange = exchange;
      const TestPlan plan = RandomPlan(&random, 8);
      const AttentionProblem& p = options.executor.problem;
      const auto data = RandomData(&random, p, plan);
      const RunResult result = RunPlan(plan, data, options);
      RequireOk(result);
      const double terms = 400.0 * p.q_heads / p.kv_heads + p.head_dim;
      CHECK(CompareWithDense(plan, data, p, result).worst() <
            8 * terms * 0x1p-24);
    }
  }
}

namespace {

// Errors of a 16-bit run of one sharded and one local sequence, over 8 ranks.
Errors SixteenBit(DType dtype, Exchange exchange,
                  std::optional<DType> grad_comm_dtype) {
  const TestPlan plan{.ranks = 8,
                      .micro_batches = {{{0, 400, 0, 8}, {1, 50, 3, 1}}}};
  std::mt19937_64 random(4);
  RunOptions options;
  options.executor.problem = {.dtype = dtype,
                              .q_heads = 4,
                              .kv_heads = 2,
                              .head_dim = 16,
                              .scale = 0.25};
  options.executor.exchange = exchange;
  options.executor.grad_comm_dtype = grad_comm_dtype;
  const auto data = RandomData(&random, options.executor.problem, plan);
  const RunResult result = RunPlan(plan, data, options);
  RequireOk(result);
  return CompareWithDense(plan, data, options.executor.problem, result);
}

}  // namespace

TEST_CASE("Executor: 16-bit tensors", "[executor]") {
  for (const Exchange exchange : {Exchange::kAllGather, Exchange::kRing}) {
    const Errors bf16 = SixteenBit(DType::kBFloat16, exchange, {});
    CHECK(bf16.worst() < 1.5e-2);
    CHECK(bf16.lse < 1e-3);
    const Errors fp16 = SixteenBit(DType::kFloat16, exchange, {});
    CHECK(fp16.worst() < 3e-3);
  }
}

TEST_CASE("Executor: float32 sums of bfloat16 gradients are nearer",
          "[executor]") {
  const Errors narrow =
      SixteenBit(DType::kBFloat16, Exchange::kAllGather, DType::kBFloat16);
  const Errors wide =
      SixteenBit(DType::kBFloat16, Exchange::kAllGather, DType::kFloat32);
  CHECK(wide.kv_norm() < narrow.kv_norm());
  CHECK(wide.o == narrow.o);
}

TEST_CASE("Executor: a permuted micro-batch gives the same", "[executor]") {
  const Placements forth = {{0, 33, 0, 4}, {1, 9, 2, 1}, {2, 20, 0, 2},
                            {3, 17, 0, 4}, {4, 6, 2, 1}, {5, 11, 0, 2}};
  const Placements back(forth.rbegin(), forth.rend());
  std::mt19937_64 random(4);
  RunOptions options;
  options.executor.problem = RandomProblem(&random, DType::kFloat64);
  const TestPlan plan{.ranks = 4, .micro_batches = {forth}};
  const TestPlan other{.ranks = 4, .micro_batches = {back}};
  const auto data = RandomData(&random, options.executor.problem, plan);
  for (const TestPlan& p : {plan, other}) {
    const RunResult result = RunPlan(p, data, options);
    RequireOk(result);
    CHECK(CompareWithDense(p, data, options.executor.problem, result).worst() <
          1e-10);
  }
}

TEST_CASE("Executor: the same bits again", "[executor]") {
  std::mt19937_64 random(11);
  RunOptions options;
  options.executor.problem = RandomProblem(&random, DType::kFloat32);
  const TestPlan plan = RandomPlan(&random, 6);
  const auto data = RandomData(&random, options.executor.problem, plan);
  const RunResult first = RunPlan(plan, data, options);
  RequireOk(first);
  options.backend_threads = 4;
  CHECK(SameBits(RunPlan(plan, data, options), first));
}

}  // namespace skrull::exec::testing
