// All that one GPU would run, on the CPU: virtual ranks, the executor, the cuda
// backend's kernels, CUDA's row kernels and sums.
#include <catch2/catch.hpp>
#include <cstdint>
#include <random>

#include "skrull/cuda/attention/cuda/cuda_attention.h"
#include "skrull/cuda/sim/launch.h"
#include "skrull/tests/cuda/shared_device.h"
#include "skrull/tests/cuda/sim/sim_device.h"

namespace skrull::exec::testing {
namespace {

void CheckRanks(int32_t ranks, Exchange exchange, DType dtype, double bound) {
  CAPTURE(ranks);
  const TestPlan plan{
      .ranks = ranks,
      .micro_batches = {
          {{0, 90, 0, ranks}, {1, 20, 1, 1}, {2, 33, ranks - 2, 2}}}};
  CudaAttention backend(MemoryKind::kHost);
  RunOptions options;
  options.executor.problem = {.dtype = dtype,
                              .q_heads = 2,
                              .kv_heads = 1,
                              .head_dim = 64,
                              .scale = 0.125};
  options.executor.exchange = exchange;
  options.change_parts = [&](int32_t, RankParts* parts) {
    parts->backend = &backend;
  };
  std::mt19937_64 random(static_cast<uint64_t>(ranks));
  const auto data = RandomData(&random, options.executor.problem, plan);
  const auto run = [&](uint64_t seed) {
    sim::SetOrderSeed(seed);
    SimDevice device;
    return RunPlanOnOneDevice(plan, data, options, &device);
  };
  const RunResult result = run(1);
  for (const Status& status : result.statuses) {
    REQUIRE(status.ToString() == "OK");
  }
  const Errors errors =
      CompareWithDense(plan, data, options.executor.problem, result);
  CHECK(errors.worst() < bound);
  CHECK(errors.lse < 1e-3);
  CHECK(SameBits(result, run(2)));
}

}  // namespace

// The bounds are those of 16-bit executors with the cpu backend
// (executor_test.cc).
TEST_CASE("GPU stack on the CPU: virtual ranks equal dense attention",
          "[kernels][executor]") {
  CheckRanks(2, Exchange::kAllGather, DType::kBFloat16, 1.5e-2);
  CheckRanks(4, Exchange::kAllGather, DType::kFloat16, 3e-3);
  CheckRanks(3, Exchange::kRing, DType::kBFloat16, 1.5e-2);
}

}  // namespace skrull::exec::testing
