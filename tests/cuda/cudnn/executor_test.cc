// The unchanged executor with the cudnn backend over a fake cuDNN: ranks, which
// share the backend, against dense attention.
#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "skrull/tests/cuda/cudnn/attention_rig.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::cudnn::testing {
namespace {

// Runs local and sharded sequences on three ranks. Returns how many head groups
// the most divided graph has.
int32_t RunPlanAndCompare(Exchange exchange, int64_t workspace_bytes) {
  Rig rig({.plan_directory = "", .workspace_bytes = workspace_bytes});
  exec::testing::RunOptions options;
  options.executor.problem = Heads(8, 4);
  options.executor.exchange = exchange;
  options.change_parts = [&](int32_t, exec::testing::RankParts* parts) {
    parts->backend = rig.backend.get();
  };
  const exec::testing::TestPlan plan{
      .ranks = 3,
      .micro_batches = {
          {{0, 90, 0, 3}, {1, 30, 1, 1}, {2, 3, 0, 3}, {3, 50, 0, 1}},
          {{4, 1, 0, 3}, {5, 17, 2, 1}}}};
  std::mt19937_64 random(1);
  const auto data =
      exec::testing::RandomData(&random, options.executor.problem, plan);
  const auto result = exec::testing::RunPlan(plan, data, options);
  for (const Status& status : result.statuses) {
    REQUIRE(status.ToString() == "OK");
  }
  CHECK(rig.fake.faults() == std::vector<std::string>{});
  CHECK(rig.lines.empty());
  // That of the executor's 16-bit tests with the cpu backend.
  CHECK(exec::testing::CompareWithDense(plan, data, options.executor.problem,
                                        result)
            .worst() < 1.5e-2);
  int32_t groups = 1;
  for (const GraphKey& key : rig.fake.built()) {
    groups = std::max(groups, 4 / key.kv_heads);
  }
  return groups;
}

}  // namespace

TEST_CASE("cudnn executor: equals dense attention", "[cudnn]") {
  // The ring's backward passes have O and LSE of more keys than they see.
  for (const Exchange exchange : {Exchange::kAllGather, Exchange::kRing}) {
    INFO("exchange " << static_cast<int32_t>(exchange));
    CHECK(RunPlanAndCompare(exchange, int64_t{1} << 30) == 1);
    CHECK(RunPlanAndCompare(exchange, 150000) > 1);
  }
}

}  // namespace skrull::exec::cudnn::testing
