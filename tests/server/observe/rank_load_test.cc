#include "skrull/server/status/rank_load.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "skrull/planner/planner.h"

namespace skrull {
namespace {

Job SmallJob(BlockScope scope, int32_t dp_size, int32_t cp_size) {
  JobSpec spec;
  spec.model.hidden_size = 64;
  spec.model.layer_count = 2;
  spec.model.attention_head_count = 4;
  spec.parallelism.dp_size = dp_size;
  spec.parallelism.cp_size = cp_size;
  spec.parallelism.block_scope = scope;
  spec.memory.bucket_size_tokens = 1000;
  return Job::Create(spec).value();
}

// The rows of the rank's fullest micro-batch or chunk, as the rank sees it.
int64_t FullestRows(const Plan& plan, int32_t rank) {
  const RankPlan share = MakeRankPlan(plan, "", rank);
  int64_t fullest = 0;
  for (const RankMicroBatch& micro_batch : share.micro_batches) {
    fullest = std::max(fullest, micro_batch.row_count);
  }
  if (share.chunk_plan) {
    for (const RankChunk& chunk : share.chunk_plan->chunks) {
      fullest = std::max(fullest, chunk.row_count);
    }
  }
  return fullest;
}

TEST_CASE("RankLoads: what each rank's share of the plan holds",
          "[server][status]") {
  constexpr uint64_t kSeed = 11;
  INFO("seed " << kSeed);
  std::mt19937_64 random(kSeed);
  const Policy policy =
      GENERATE(Policy::kOptimized, Policy::kSkrull, Policy::kChunkFlow);
  const BlockScope scope = GENERATE(BlockScope::kGroup, BlockScope::kPool);
  if (policy != Policy::kOptimized && scope != BlockScope::kGroup) return;
  for (const auto& [dp_size, cp_size] :
       {std::pair{1, 1}, std::pair{2, 4}, std::pair{3, 5}, std::pair{16, 8}}) {
    const Job job = SmallJob(scope, dp_size, cp_size);
    std::vector<int64_t> lengths;
    for (int k = 0; k < 50; ++k) {
      const auto most = static_cast<uint64_t>(
          k % 10 == 0 ? job.longest_sequence() : int64_t{600});
      lengths.push_back(static_cast<int64_t>(1 + random() % most));
    }
    const absl::StatusOr<Plan> plan =
        MakePlan(job, lengths, {.key = {"run", 1, 0}, .policy = policy});
    REQUIRE(plan.ok());
    const std::vector<float> loads = RankLoads(job, *plan, 64);
    REQUIRE(std::ssize(loads) == std::min(dp_size * cp_size, 64));
    for (int32_t rank = 0; rank < std::ssize(loads); ++rank) {
      CAPTURE(dp_size, cp_size, rank);
      CHECK(loads[static_cast<size_t>(rank)] ==
            Approx(static_cast<double>(FullestRows(*plan, rank)) / 1000));
      CHECK(loads[static_cast<size_t>(rank)] <= 1);
    }
  }
}

}  // namespace
}  // namespace skrull
