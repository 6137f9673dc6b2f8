// Plans of POLICY_CHUNK_FLOW, as the planner hands them to ranks, in the chunk
// executor.
#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"
#include "skrull/tests/cuda/chunk_pool.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull::exec::testing {

TEST_CASE("Chunks: the planner's plans equal dense attention", "[chunks]") {
  const AttentionProblem problem{.dtype = DType::kFloat64,
                                 .q_heads = 2,
                                 .kv_heads = 1,
                                 .head_dim = 4,
                                 .scale = 0.5};
  int split = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    skrull::testing::Random random(seed);
    JobSpec spec = skrull::testing::UnitSpec(
        static_cast<int32_t>(random.Between(1, 2)),
        static_cast<int32_t>(random.Between(1, 4)), random.Between(4, 20));
    spec.chunk_flow.retained_chunks = random.Between(1, 3);
    const Job job = skrull::testing::MakeJob(spec);
    std::vector<int64_t> lengths(static_cast<size_t>(random.Between(1, 8)));
    for (int64_t& length : lengths) length = random.Between(1, 90);
    const Plan plan =
        skrull::testing::MustPlan(job, lengths, Policy::kChunkFlow);
    REQUIRE(plan.chunk_plan.has_value());

    // What each rank is handed is its share by definition.
    const TestChunks chunks(*plan.chunk_plan, {lengths.begin(), lengths.end()});
    REQUIRE(chunks.ranks() == job.pool().ranks());
    for (int32_t rank = 0; rank < chunks.ranks(); ++rank) {
      std::optional<RankChunkPlan> share =
          MakeRankPlan(plan, "test", rank).chunk_plan;
      REQUIRE(share.has_value());
      for (RankChunk& chunk : share->chunks) {
        split += chunk.group_size > 1 ? 1 : 0;
        chunk.token_weight = 0;
      }
      REQUIRE(*share == *chunks.ForRank(rank).chunk_plan);
    }

    std::mt19937_64 values(seed);
    RunOptions options;
    options.executor.problem = problem;
    const auto data = RandomData(&values, problem, chunks);
    const ChunkRunResult result = RunChunks(chunks, data, options);
    for (const Status& status : result.statuses) {
      INFO(status.ToString());
      REQUIRE(status.ok());
    }
    CHECK(CompareWithDense(chunks, data, problem, result).worst() < 1e-10);
  }
  CHECK(split > 100);
}

}  // namespace skrull::exec::testing
