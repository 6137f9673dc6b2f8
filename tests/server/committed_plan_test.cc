#include "skrull/server/committed_plan.h"

#include <catch2/catch.hpp>
#include <random>

#include "skrull/planner/error.h"
#include "skrull/planner/planner.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

// A plan that uses any allowed block of the pool, as later policies do.
Plan RandomPlan(BlockScope scope, PoolShape pool, std::mt19937_64* random) {
  Plan plan;
  plan.key = {"run", 3, 1};
  std::vector<Block> blocks;
  for (const int32_t degree : AllowedDegrees(scope, pool)) {
    for (const Block block : AllowedBlocks(scope, pool, degree)) {
      blocks.push_back(block);
    }
  }
  int32_t sequence = 0;
  const size_t micro_batches = 1 + (*random)() % 4;
  for (size_t i = 0; i < micro_batches; ++i) {
    MicroBatchPlan micro_batch;
    const size_t count = (*random)() % 40;
    for (size_t k = 0; k < count; ++k) {
      const Block block = blocks[(*random)() % blocks.size()];
      const auto tokens = static_cast<int32_t>(1 + (*random)() % 50);
      micro_batch.placements.push_back(
          {sequence++, tokens, block.first_rank, block.degree});
      micro_batch.token_count += tokens;
    }
    plan.micro_batches.push_back(micro_batch);
  }
  return plan;
}

TEST_CASE("CommittedPlan: a share is what MakeRankPlan says, on any blocks",
          "[server][committed_plan]") {
  constexpr uint64_t kSeed = 7;
  INFO("seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (const BlockScope scope :
       {BlockScope::kGroup, BlockScope::kSubgroup, BlockScope::kPool}) {
    for (const PoolShape pool :
         {PoolShape{1, 1}, PoolShape{1, 8}, PoolShape{4, 4}, PoolShape{3, 6},
          PoolShape{5, 3}}) {
      for (int round = 0; round < 20; ++round) {
        Plan plan = RandomPlan(scope, pool, &random);
        if (plan.micro_batches[0].placements.empty()) continue;
        const auto committed = CommittedPlan::Make(plan, "digest", {});
        for (int32_t rank = 0; rank < pool.ranks() + 2; ++rank) {
          INFO("rank " << rank << " of " << pool.dp_size << " x "
                       << pool.cp_size);
          REQUIRE(committed->Share(rank) == MakeRankPlan(plan, "digest", rank));
        }
      }
    }
  }
}

TEST_CASE("CommittedPlan: a share of chunks is what MakeRankPlan says",
          "[server][committed_plan]") {
  constexpr uint64_t kSeed = 8;
  INFO("seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 30; ++round) {
    JobSpec spec;
    spec.model.hidden_size = 64;
    spec.model.layer_count = 2;
    spec.model.attention_head_count = 4;
    spec.parallelism.dp_size = 1 + static_cast<int32_t>(random() % 4);
    spec.parallelism.cp_size = 1 + static_cast<int32_t>(random() % 5);
    spec.memory.bucket_size_tokens = 20;
    spec.policy = Policy::kChunkFlow;
    const absl::StatusOr<Job> job = Job::Create(spec);
    REQUIRE(job.ok());
    std::vector<int64_t> lengths;
    for (int i = 0; i < 12; ++i) {
      lengths.push_back(1 + static_cast<int64_t>(random() % 300));
    }
    const absl::StatusOr<Plan> plan = MakePlan(*job, lengths, {});
    REQUIRE(plan.ok());
    const EncodedPlan encoded = EncodePlan(*plan);
    const auto committed = CommittedPlan::Decode({.key = {},
                                                  .generation = 1,
                                                  .request_digest = "",
                                                  .plan = encoded.bytes});
    REQUIRE(committed.ok());
    for (int32_t rank = 0; rank < job->pool().ranks() + 2; ++rank) {
      INFO("rank " << rank);
      const RankPlan share = (*committed)->Share(rank);
      REQUIRE(share == MakeRankPlan(*plan, encoded.digest, rank));
      REQUIRE(share.chunk_plan.has_value());
    }
  }
}

TEST_CASE("CommittedPlan: refuses stored chunks that no share can be made of",
          "[server][committed_plan]") {
  Plan plan;
  plan.policy = Policy::kChunkFlow;
  plan.chunk_plan = ChunkPlan{
      .chunk_size_tokens = 4,
      .retained_chunks = 1,
      .chunks = {{.dp_rank = 0, .pieces = {{0, 3, {0, 3}}}, .token_count = 3}},
      .schedules = {{}}};
  const auto decodes = [&](const auto& change) {
    Plan changed = plan;
    change(*changed.chunk_plan);
    PlanRecord record;
    record.plan = EncodePlan(changed).bytes;
    return CommittedPlan::Decode(record).ok();
  };
  CHECK(decodes([](ChunkPlan&) {}));
  CHECK_FALSE(decodes([](ChunkPlan& p) { p.cp_size = 0; }));
  CHECK_FALSE(decodes([](ChunkPlan& p) { p.chunks[0].dp_rank = 1; }));
  CHECK_FALSE(decodes([](ChunkPlan& p) { p.chunks[0].dp_rank = -1; }));
  CHECK_FALSE(decodes([](ChunkPlan& p) { p.chunks[0].token_count = 0; }));
  CHECK_FALSE(
      decodes([](ChunkPlan& p) { p.chunks[0].pieces[0].range.begin = -1; }));
  CHECK_FALSE(decodes([](ChunkPlan& p) {
    p.chunks[0].pieces[0].range.end = int64_t{1} << 31;
  }));
}

TEST_CASE("CommittedPlan: decodes its own bytes and refuses others",
          "[server][committed_plan]") {
  JobSpec spec;
  spec.model.hidden_size = 64;
  spec.model.layer_count = 2;
  spec.model.attention_head_count = 4;
  spec.parallelism.cp_size = 4;
  spec.memory.bucket_size_tokens = 100;
  const absl::StatusOr<Job> job = Job::Create(spec);
  REQUIRE(job.ok());
  const std::vector<int64_t> lengths = {10, 350, 20, 30};
  const absl::StatusOr<Plan> plan =
      MakePlan(*job, lengths, PlanOptions{{"run", 3, 1}, std::nullopt, 0});
  REQUIRE(plan.ok());
  const v1::Plan message = PlanToProto(*plan);
  PlanRecord record{.key = plan->key,
                    .generation = 1,
                    .request_digest = "r",
                    .plan = CanonicalBytes(message)};
  const auto decoded = CommittedPlan::Decode(record);
  REQUIRE(decoded.ok());
  CHECK((*decoded)->plan() == *plan);
  CHECK((*decoded)->digest() == message.digest());
  v1::Plan changed = message;
  changed.mutable_summary()->set_predicted_seconds(1);
  record.plan = CanonicalBytes(changed);
  CHECK(std::string(CommittedPlan::Decode(record).status().message())
            .find("not that of its digest") != std::string::npos);
  record.plan = "\xff not a plan";
  const auto refused = CommittedPlan::Decode(record);
  REQUIRE_FALSE(refused.ok());
  CHECK(GetErrorDetail(refused.status())->reason == ErrorReason::kInternal);
  CHECK(std::string(refused.status().message()).find("step 3") !=
        std::string::npos);
}

}  // namespace
}  // namespace skrull
