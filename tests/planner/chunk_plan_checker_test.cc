// The checker on plans of chunks: each rule, broken alone, is named.
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::MustPlan;

const std::vector<int64_t> kLengths = {9, 8, 3, 4, 21};

// Two CP groups of two ranks, chunks of eight tokens, one retained: sequence 4
// is chunks 0 .. 2 and sequence 0 two more.
JobSpec Spec() {
  JobSpec spec = testing::UnitSpec(2, 2, 4);
  spec.cost.intra_node = {3, 0.5, {}};
  spec.policy = Policy::kChunkFlow;
  return spec;
}

std::string Verdict(const JobSpec& spec, const Plan& plan) {
  return std::string(CheckPlan(MakeJob(spec), kLengths, plan).message());
}

using Change = std::function<void(Plan&)>;

Chunk& ChunkOf(Plan& plan, int32_t sequence, int32_t index = 0) {
  for (Chunk& chunk : plan.chunk_plan->chunks) {
    for (const ChunkPiece& piece : chunk.pieces) {
      if (piece.sequence == sequence && chunk.group_index == index) {
        return chunk;
      }
    }
  }
  throw std::runtime_error("no such chunk");
}

std::vector<ChunkOperation>& Operations(Plan& plan, int32_t sequence) {
  const auto dp_rank = static_cast<size_t>(ChunkOf(plan, sequence).dp_rank);
  return plan.chunk_plan->schedules[dp_rank].operations;
}

TEST_CASE("CheckPlan: every rule of chunks, broken alone, is named",
          "[planner][chunks][checker]") {
  const Plan legal = MustPlan(MakeJob(Spec()), kLengths);
  REQUIRE(Verdict(Spec(), legal).empty());
  REQUIRE(Operations(const_cast<Plan&>(legal), 4).size() >= 8);
  const std::vector<std::pair<std::string, Change>> rows = {
      {"has chunks", [](Plan& p) { p.policy = Policy::kSkrull; }},
      {"no micro-batches", [](Plan& p) { p.micro_batches.emplace_back(); }},
      {"no micro-batches", [](Plan& p) { p.chunk_plan.reset(); }},
      {"cp_size", [](Plan& p) { p.chunk_plan->cp_size = 0; }},
      {"retained_chunks", [](Plan& p) { p.chunk_plan->retained_chunks = 2; }},
      {"number of schedules",
       [](Plan& p) { p.chunk_plan->schedules.pop_back(); }},
      {"the chunk size", [](Plan& p) { p.chunk_plan->chunk_size_tokens = 7; }},
      {"dp_rank is -1", [](Plan& p) { ChunkOf(p, 1).dp_rank = -1; }},
      {"dp_rank is 2", [](Plan& p) { ChunkOf(p, 1).dp_rank = 2; }},
      {"number 0 of 0", [](Plan& p) { ChunkOf(p, 1).group_size = 0; }},
      {"number 3 of 3", [](Plan& p) { ChunkOf(p, 4, 2).group_index = 3; }},
      {"0 pieces", [](Plan& p) { ChunkOf(p, 1).pieces.clear(); }},
      {"2 pieces",
       [](Plan& p) {
         ChunkOf(p, 4, 2).pieces.push_back(ChunkOf(p, 4, 2).pieces[0]);
       }},
      {"holds sequences 0 .. 4",
       [](Plan& p) { ChunkOf(p, 1).pieces[0].sequence = 5; }},
      {"token_count is 9",
       [](Plan& p) { ChunkOf(p, 1).pieces[0].token_count = 9; }},
      {"is no part of", [](Plan& p) { ChunkOf(p, 1).pieces[0].range.end = 9; }},
      {"is no part of",
       [](Plan& p) { ChunkOf(p, 1).pieces[0].range.begin = -1; }},
      {"is no part of",
       [](Plan& p) { ChunkOf(p, 1).pieces[0].range = {8, 8}; }},
      {"is no part of",
       [](Plan& p) {
         ChunkOf(p, 1).pieces[0].range.end =
             std::numeric_limits<int64_t>::min();
       }},
      {"token_count is 7", [](Plan& p) { ChunkOf(p, 1).token_count = 7; }},
      {"predicted_seconds",
       [](Plan& p) { ChunkOf(p, 1).predicted_seconds += 1e-3; }},
      {"in no chunk",
       [](Plan& p) {
         ChunkOf(p, 2).pieces.pop_back();
         FinishPlan(MakeJob(Spec()), kLengths, &p);
       }},
      {"a second time",
       [](Plan& p) { p.chunk_plan->chunks.push_back(ChunkOf(p, 1)); }},
      {"which is for whole sequences",
       [](Plan& p) {
         ChunkOf(p, 1).pieces[0].range.end = 7;
         FinishPlan(MakeJob(Spec()), kLengths, &p);
       }},
      {"begins at",
       [](Plan& p) {
         std::swap(ChunkOf(p, 4, 0).group_index, ChunkOf(p, 4, 1).group_index);
       }},
      {"differ in DP rank", [](Plan& p) { ChunkOf(p, 4, 1).dp_rank ^= 1; }},
      {"chunks of 4",
       [](Plan& p) {
         for (int32_t i = 0; i < 3; ++i) ChunkOf(p, 4, i).group_size = 4;
       }},
      {"dp_rank is 1", [](Plan& p) { p.chunk_plan->schedules[0].dp_rank = 1; }},
      {"no chunk of this DP rank",
       [](Plan& p) { Operations(p, 4)[0].chunk = -1; }},
      {"no chunk of this DP rank",
       [](Plan& p) { Operations(p, 4)[0].chunk = 1 << 30; }},
      {"does not run it backward",
       [](Plan& p) {
         p.chunk_plan->schedules[1].operations.clear();
         p.chunk_plan->schedules[1].predicted_seconds = 0;
       }},
      {"predicted_seconds",
       [](Plan& p) { p.chunk_plan->schedules[1].predicted_seconds *= 2; }},
      {"entry 0", [](Plan& p) { p.blocks.erase(p.blocks.begin()); }},
      {"entry 2", [](Plan& p) { p.blocks.push_back({0, 4}); }},
      {"sharded_sequence_count",
       [](Plan& p) { --p.summary.sharded_sequence_count; }},
      {"sharded_token_count", [](Plan& p) { --p.summary.sharded_token_count; }},
      {"micro_batch_count", [](Plan& p) { ++p.summary.micro_batch_count; }},
      {"max_rank_tokens", [](Plan& p) { ++p.summary.max_rank_tokens; }},
      {"roll_back_count", [](Plan& p) { ++p.summary.roll_back_count; }},
      {"summary: predicted_seconds",
       [](Plan& p) { p.summary.predicted_seconds *= 1 + 1e-6; }},
      {"lower_bound_seconds",
       [](Plan& p) { p.summary.lower_bound_seconds *= 1 - 1e-6; }},
      {"dp_imbalance", [](Plan& p) { p.summary.dp_imbalance += 1e-6; }},
      {"rank_imbalance", [](Plan& p) { p.summary.rank_imbalance += 1e-6; }},
      {"explains nothing", [](Plan& p) { p.summary.explanation.emplace(); }},
      {"pipeline_seconds", [](Plan& p) { p.summary.pipeline_seconds = 1; }},
      {"pipeline_bubble", [](Plan& p) { p.summary.pipeline_bubble = 0.5; }}};
  for (const auto& [text, change] : rows) {
    Plan plan = legal;
    change(plan);
    const std::string verdict = Verdict(Spec(), plan);
    CAPTURE(text, verdict);
    CHECK(verdict.find(text) != std::string::npos);
  }
}

// Sequence 4's operations are FD FD F B R B R B of its chunks a, b, c.
TEST_CASE("CheckPlan: schedules that break an order or memory are named",
          "[planner][chunks][checker]") {
  using enum ChunkPass;
  const Plan legal = MustPlan(MakeJob(Spec()), kLengths);
  const std::vector<ChunkOperation> given =
      Operations(const_cast<Plan&>(legal), 4);
  const int32_t a = given[0].chunk;
  const int32_t b = a + 1;
  const int32_t c = a + 2;
  const std::vector<ChunkOperation> wanted = {
      {kForwardDiscard, a}, {kForwardDiscard, b}, {kForward, c},
      {kBackward, c},       {kRecompute, b},      {kBackward, b},
      {kRecompute, a},      {kBackward, a}};
  REQUIRE(std::vector<ChunkOperation>(given.begin(), given.begin() + 8) ==
          wanted);
  struct Row {
    std::string text;
    std::vector<ChunkOperation> operations;
  };
  const std::vector<Row> rows = {
      {"forward before chunk", {{kForwardDiscard, b}}},
      {"forward a second time", {{kForwardDiscard, a}, {kForward, a}}},
      {"backward without", {{kForwardDiscard, a}, {kBackward, a}}},
      {"backward without", {{kBackward, a}}},
      {"backward before chunk", {{kForward, a}, {kBackward, a}}},
      {"recomputed without", {{kForward, a}, {kRecompute, a}}},
      {"recomputed without", {{kRecompute, a}}},
      {"> 4, the bucket size", {{kForward, a}, {kForward, b}}},
  };
  for (const Row& row : rows) {
    Plan plan = legal;
    std::vector<ChunkOperation>& operations = Operations(plan, 4);
    operations.erase(operations.begin(), operations.begin() + 8);
    operations.insert(operations.begin(), row.operations.begin(),
                      row.operations.end());
    const std::string verdict = Verdict(Spec(), plan);
    CAPTURE(row.text, verdict);
    CHECK(verdict.find(row.text) != std::string::npos);
  }

  // Memory for more, but K is one.
  JobSpec roomy = Spec();
  roomy.memory.bucket_size_tokens = 8;
  roomy.chunk_flow.chunk_size_tokens = 8;
  Plan kept = MustPlan(MakeJob(roomy), kLengths);
  REQUIRE(Verdict(roomy, kept).empty());
  Operations(kept, 4)[0].pass = kForward;
  Operations(kept, 4)[1].pass = kForward;
  CHECK(Verdict(roomy, kept).find("are kept, 1 may be") != std::string::npos);

  // A single chunk has nothing to wait for.
  Plan single = legal;
  for (ChunkOperation& operation : Operations(single, 1)) {
    if (&single.chunk_plan->chunks[static_cast<size_t>(operation.chunk)] ==
        &ChunkOf(single, 1)) {
      operation.pass = kForwardDiscard;
      break;
    }
  }
  CHECK(Verdict(Spec(), single).find("single chunk is discarded") !=
        std::string::npos);

  // Bytes: the whole of 21 tokens' keys and values.
  JobSpec tight = Spec();
  tight.memory.bytes_per_token = 1;
  tight.memory.gather_bytes_per_token = 0.01;
  CHECK(Verdict(tight, legal).find("the byte budget") != std::string::npos);
  JobSpec capped = Spec();
  capped.memory.max_sequences_per_micro_batch = 1;
  CHECK(Verdict(capped, legal).find("2 pieces") != std::string::npos);
}

TEST_CASE("CheckPlan: a placement plan is none of POLICY_CHUNK_FLOW",
          "[planner][chunks][checker]") {
  const Job job = MakeJob(testing::UnitSpec(1, 2, 10));
  const std::vector<int64_t> lengths = {1, 19};
  Plan plan = MustPlan(job, lengths, Policy::kSkrull);
  plan.policy = Policy::kChunkFlow;
  CHECK_FALSE(CheckPlan(job, lengths, plan).ok());
  Plan chunks = MustPlan(job, lengths, Policy::kChunkFlow);
  CHECK(CheckPlan(job, lengths, chunks).ok());
  chunks.policy = Policy::kOptimized;
  CHECK_FALSE(CheckPlan(job, lengths, chunks).ok());
}

}  // namespace
}  // namespace skrull
