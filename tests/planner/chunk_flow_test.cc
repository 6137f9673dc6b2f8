// POLICY_CHUNK_FLOW: schedules and plans by hand, all small batches, memory and
// its refusals, rank shares, and a pipeline.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "skrull/planner/chunk_flow/bin_packing.h"
#include "skrull/planner/chunk_flow/chunk_memory.h"
#include "skrull/planner/chunk_flow/chunk_schedule.h"
#include "skrull/planner/error.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::MustPlan;
using testing::UnitSpec;

using Lengths = std::vector<int64_t>;

// "FD0 F1 B1 R0 B0".
std::string ToText(const std::vector<ChunkOperation>& operations) {
  std::string text;
  for (const ChunkOperation& operation : operations) {
    if (!text.empty()) text += " ";
    switch (operation.pass) {
      case ChunkPass::kForward:
        text += "F";
        break;
      case ChunkPass::kForwardDiscard:
        text += "FD";
        break;
      case ChunkPass::kRecompute:
        text += "R";
        break;
      case ChunkPass::kBackward:
        text += "B";
        break;
    }
    text += std::to_string(operation.chunk);
  }
  return text;
}

// "dp 0: 0[0,8) #0/2 = 243": DP rank, pieces, place in the group, seconds.
std::string ToText(const Chunk& chunk) {
  std::string text = "dp " + std::to_string(chunk.dp_rank) + ":";
  for (const ChunkPiece& piece : chunk.pieces) {
    text += " " + std::to_string(piece.sequence) + "[" +
            std::to_string(piece.range.begin) + "," +
            std::to_string(piece.range.end) + ")";
  }
  return text + " #" + std::to_string(chunk.group_index) + "/" +
         std::to_string(chunk.group_size);
}

JobSpec ChunkSpec(int32_t dp_size, int32_t cp_size, int64_t bucket,
                  int64_t retained) {
  JobSpec spec = UnitSpec(dp_size, cp_size, bucket);
  spec.chunk_flow.retained_chunks = retained;
  spec.cost.backward_forward_ratio = 1;
  spec.policy = Policy::kChunkFlow;
  return spec;
}

TEST_CASE("StateAwareSchedule: by hand", "[planner][chunks]") {
  CHECK(ToText(StateAwareSchedule(7, 1, 1)) == "F7 B7");
  CHECK(ToText(StateAwareSchedule(0, 3, 3)) == "F0 F1 F2 B2 B1 B0");
  CHECK(ToText(StateAwareSchedule(0, 3, 9)) == "F0 F1 F2 B2 B1 B0");
  CHECK(ToText(StateAwareSchedule(2, 4, 2)) ==
        "FD2 FD3 F4 F5 B5 B4 R3 B3 R2 B2");
  CHECK(ToText(StateAwareSchedule(0, 3, 1)) == "FD0 FD1 F2 B2 R1 B1 R0 B0");
}

TEST_CASE("ChunkFlow: one rank by hand", "[planner][chunks]") {
  JobSpec spec = ChunkSpec(1, 1, 4, 2);
  spec.cost.seconds_per_micro_batch = 10;
  const Job job = MakeJob(spec);
  const Lengths lengths = {5, 1, 1};
  // No block holds five tokens.
  CHECK(CheckBatch(job, lengths, Policy::kSkrull).code() ==
        absl::StatusCode::kFailedPrecondition);
  const Plan plan = MustPlan(job, lengths);
  REQUIRE(CheckPlan(job, lengths, plan) == absl::OkStatus());
  CHECK(plan.micro_batches.empty());
  CHECK(plan.blocks.empty());
  const ChunkPlan& chunks = plan.chunk_plan.value();
  CHECK(chunks.chunk_size_tokens == 2);  // two of them fill the bucket
  CHECK(chunks.retained_chunks == 2);
  REQUIRE(chunks.chunks.size() == 4);
  CHECK(ToText(chunks.chunks[0]) == "dp 0: 0[0,2) #0/3");
  CHECK(ToText(chunks.chunks[1]) == "dp 0: 0[2,4) #1/3");
  CHECK(ToText(chunks.chunks[2]) == "dp 0: 0[4,5) #2/3");
  CHECK(ToText(chunks.chunks[3]) == "dp 0: 1[0,1) 2[0,1) #0/1");
  // 24 a token, 4 (e^2 - b^2) a piece: they sum to 24 * 5 + 4 * 25.
  CHECK(chunks.chunks[0].predicted_seconds == 48 + 16);
  CHECK(chunks.chunks[1].predicted_seconds == 48 + 48);
  CHECK(chunks.chunks[2].predicted_seconds == 24 + 36);
  CHECK(chunks.chunks[3].predicted_seconds == 56);
  REQUIRE(chunks.schedules.size() == 1);
  CHECK(ToText(chunks.schedules[0].operations) ==
        "FD0 F1 F2 B2 B1 R0 B0 F3 B3");
  // Recomputing the first: half of 64 + 10.
  CHECK(plan.summary.predicted_seconds == 220 + 56 + 4 * 10 + 37);
  // All work, and two chunks' overhead: seven tokens fit in no less.
  CHECK(plan.summary.lower_bound_seconds == 276 + 20);
  CHECK(plan.summary.max_rank_tokens == 3);
  CHECK(plan.summary.micro_batch_count == 0);
  CHECK(plan.summary.sharded_sequence_count == 0);
  CHECK(plan.summary.pipeline_seconds == 0);
}

TEST_CASE("ChunkFlow: two CP groups by hand", "[planner][chunks]") {
  JobSpec spec = ChunkSpec(2, 2, 4, 1);
  spec.cost.intra_node = {3, 0.5, {}};  // 3 + 2 n for n tokens
  const Job job = MakeJob(spec);
  const Lengths lengths = {9, 8, 3, 4};
  const Plan plan = MustPlan(job, lengths);
  REQUIRE(CheckPlan(job, lengths, plan) == absl::OkStatus());
  const ChunkPlan& chunks = plan.chunk_plan.value();
  CHECK(chunks.chunk_size_tokens == 8);
  CHECK(chunks.cp_size == 2);
  REQUIRE(chunks.chunks.size() == 4);
  CHECK(ToText(chunks.chunks[0]) == "dp 0: 0[0,8) #0/2");
  CHECK(ToText(chunks.chunks[1]) == "dp 0: 0[8,9) #1/2");
  CHECK(ToText(chunks.chunks[2]) == "dp 1: 1[0,8) #0/1");
  CHECK(ToText(chunks.chunks[3]) == "dp 1: 2[0,3) 3[0,4) #0/1");
  CHECK(chunks.chunks[0].predicted_seconds == (192 + 256) / 2 + 19);
  CHECK(chunks.chunks[1].predicted_seconds == (24 + 4 * 17) / 2 + 5);
  CHECK(chunks.chunks[2].predicted_seconds == 224 + 19);
  CHECK(chunks.chunks[3].predicted_seconds == (168 + 4 * 25) / 2 + 17);
  // Keys and values are not exchanged again: 224 / 2.
  CHECK(chunks.schedules[0].predicted_seconds == 243 + 51 + 112);
  CHECK(chunks.schedules[1].predicted_seconds == 243 + 151);
  CHECK(plan.summary.predicted_seconds == 406);
  CHECK(plan.summary.dp_imbalance == Approx(406.0 / 400 - 1));
  CHECK(plan.summary.rank_imbalance == Approx(382.0 / 370 - 1));
  CHECK(plan.summary.max_rank_tokens == 4);
  CHECK(plan.summary.sharded_token_count == 24);
  CHECK((plan.blocks == std::vector<Block>{{0, 2}, {2, 2}}));

  const RankPlan first = MakeRankPlan(plan, "d", 0);
  CHECK(first.batch_token_count == 24);
  CHECK(first.micro_batches.empty());
  REQUIRE(first.chunk_plan->chunks.size() == 2);
  CHECK(ToText(first.chunk_plan->operations) == "FD0 F1 B1 R0 B0");
  const RankChunk& whole = first.chunk_plan->chunks[0];
  CHECK((whole.segments ==
         std::vector<RankSegment>{{0, 9, {0, 2}, {0, 2}, {6, 8}}}));
  CHECK(whole.row_count == 4);
  CHECK(whole.token_weight == 4.0 / 24);
  CHECK(whole.token_count == 8);
  const RankChunk& rest = first.chunk_plan->chunks[1];
  CHECK((rest.segments ==
         std::vector<RankSegment>{{0, 9, {0, 2}, {8, 8}, {8, 9}}}));
  CHECK(rest.group_index == 1);
  CHECK(rest.group_size == 2);
  CHECK(rest.token_count == 1);

  const RankPlan last = MakeRankPlan(plan, "d", 3);
  REQUIRE(last.chunk_plan->chunks.size() == 2);
  CHECK(last.chunk_plan->chunks[1].chunk == 3);
  // The rotation runs over the pieces: rows 2 and 1, then 2 and 2.
  CHECK((last.chunk_plan->chunks[1].segments ==
         std::vector<RankSegment>{{2, 3, {2, 2}, {1, 1}, {1, 2}},
                                  {3, 4, {2, 2}, {1, 2}, {2, 3}}}));
  CHECK(last.chunk_plan->chunks[1].row_count == 3);

  CHECK(MakeRankPlan(plan, "d", 4).chunk_plan->chunks.empty());
}

// Tokens of each sequence that all ranks hold, each position once.
std::string ShareProblem(const Job& job, const Lengths& lengths,
                         const Plan& plan) {
  std::vector<std::vector<TokenRange>> held(lengths.size());
  double weight = 0;
  for (int32_t rank = 0; rank < job.pool().ranks(); ++rank) {
    const RankPlan share = MakeRankPlan(plan, "", rank);
    for (const RankChunk& chunk : share.chunk_plan->chunks) {
      int64_t rows = 0;
      for (const RankSegment& segment : chunk.segments) {
        rows += segment.rows();
        for (const TokenRange& range : {segment.low, segment.high}) {
          if (range.size() > 0) {
            held[static_cast<size_t>(segment.sequence)].push_back(range);
          }
        }
      }
      if (rows != chunk.row_count) return "row_count";
      weight += chunk.token_weight;
    }
  }
  for (size_t k = 0; k < lengths.size(); ++k) {
    std::sort(held[k].begin(), held[k].end(),
              [](TokenRange a, TokenRange b) { return a.begin < b.begin; });
    int64_t end = 0;
    for (const TokenRange& range : held[k]) {
      if (range.begin != end) return "a gap or an overlap";
      end = range.end;
    }
    if (end != lengths[k]) return "tokens are missing";
  }
  return std::abs(weight - 1) < 1e-9 ? "" : "weights do not sum to 1";
}

std::string PlanProblem(const JobSpec& spec, const Lengths& lengths) {
  const Job job = MakeJob(spec);
  const absl::StatusOr<Plan> plan = MakePlan(job, lengths, {});
  if (plan.status() != CheckBatch(job, lengths)) return "CheckBatch disagrees";
  if (!plan.ok()) {
    // Justified only if even the smallest chunks do not hold the longest.
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    return longest > LongestInChunks(job, kMaxTokens) ? "" : "refused";
  }
  const absl::Status legal = CheckPlan(job, lengths, *plan);
  if (!legal.ok()) return legal.ToString();
  const PlanSummary& s = plan->summary;
  if (s.lower_bound_seconds > s.predicted_seconds * (1 + 1e-9)) {
    return "faster than the bound";
  }
  // As few packed chunks as there can be.
  const ChunkPlan& chunks = *plan->chunk_plan;
  Lengths packed;
  for (const int64_t length : lengths) {
    if (length <= chunks.chunk_size_tokens) packed.push_back(length);
  }
  int64_t groups = 0;
  for (const Chunk& chunk : chunks.chunks) {
    groups += chunk.group_size == 1 ? 1 : 0;
    if (chunk.group_size > 1 && chunk.group_index + 1 < chunk.group_size &&
        chunk.token_count != chunks.chunk_size_tokens) {
      return "a chunk before the last is not full";
    }
  }
  if (!packed.empty() &&
      groups !=
          static_cast<int64_t>(
              PackFewest(packed,
                         StandaloneCapacity(job, {chunks.chunk_size_tokens,
                                                  chunks.retained_chunks}),
                         job.max_sequences_per_micro_batch())
                  .size())) {
    return "not the fewest packed chunks";
  }
  return ShareProblem(job, lengths, *plan);
}

TEST_CASE("ChunkFlow: every small batch", "[planner][chunks][exhaustive]") {
  int64_t instances = 0;
  for (int32_t dp = 1; dp <= 2; ++dp) {
    for (int32_t cp = 1; cp <= 3; ++cp) {
      for (const int64_t bucket : {1, 3, 4}) {
        for (const int64_t retained : {1, 2, 5}) {
          JobSpec spec = ChunkSpec(dp, cp, bucket, retained);
          spec.cost.seconds_per_micro_batch = 50;
          spec.cost.intra_node = {10, 1, {}};
          spec.parallelism.pp_size = retained == 2 ? 3 : 1;
          if (bucket == 4) {
            spec.memory.bytes_per_token = 1;
            spec.memory.gather_bytes_per_token = 0.25;
          }
          Lengths lengths;
          const auto extend = [&](auto&& self, int64_t least) -> void {
            if (!lengths.empty()) {
              ++instances;
              spec.chunk_flow.chunk_size_tokens =
                  instances % 3 == 0 ? std::optional<int64_t>(1 + instances % 7)
                                     : std::nullopt;
              const std::string problem = PlanProblem(spec, lengths);
              if (!problem.empty()) {
                FAIL(problem << ": " << testing::ToText(lengths) << " K "
                             << retained << " chunk "
                             << spec.chunk_flow.chunk_size_tokens.value_or(0)
                             << testing::ToText(spec));
              }
            }
            if (lengths.size() == 4) return;
            for (int64_t n = least; n <= 3 * bucket * cp + 1; n += 1 + n / 4) {
              lengths.push_back(n);
              self(self, n);
              lengths.pop_back();
            }
          };
          extend(extend, 1);
        }
      }
    }
  }
  CHECK(instances > 15000);
}

TEST_CASE("ChunkFlow: random jobs", "[planner][chunks][random]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int planned = 0;
  for (int run = 0; run < 1500; ++run) {
    JobSpec spec = testing::RandomSpec(random);
    spec.policy = Policy::kChunkFlow;
    spec.parallelism.uniform_micro_batch_count = false;
    spec.parallelism.pp_size = random.Pick({1, 1, 2, 5});
    spec.chunk_flow.retained_chunks = random.Pick<int64_t>({1, 2, 3, 16});
    if (random.Chance(0.4)) {
      spec.chunk_flow.chunk_size_tokens =
          random.Between(1, 2 * MakeJob(spec).bucket_size());
    }
    Lengths lengths = testing::RandomLengths(random, MakeJob(spec), 40);
    if (random.Chance(0.5)) {
      lengths.push_back(random.Between(1, 20 * MakeJob(spec).bucket_size()));
    }
    const std::string problem = PlanProblem(spec, lengths);
    planned += CheckBatch(MakeJob(spec), lengths).ok() ? 1 : 0;
    if (!problem.empty()) {
      FAIL(problem << ": " << testing::ToText(lengths) << " K "
                   << spec.chunk_flow.retained_chunks << " chunk "
                   << spec.chunk_flow.chunk_size_tokens.value_or(0)
                   << testing::ToText(spec));
    }
  }
  CHECK(planned > 700);
}

TEST_CASE("ChunkFlow: what memory cannot hold is refused, with a way out",
          "[planner][chunks]") {
  // Five retained chunks of one token, in a bucket of four.
  JobSpec spec = ChunkSpec(1, 1, 4, 5);
  const Lengths lengths = {4, 7, 1, 9};
  const absl::Status status = CheckBatch(MakeJob(spec), lengths);
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  const ErrorDetail detail = GetErrorDetail(status).value();
  CHECK(detail.reason == ErrorReason::kSequenceTooLong);
  CHECK((detail.indices == std::vector<int64_t>{1, 3}));
  CHECK(detail.limit == 4);
  const std::string message(status.message());
  for (const char* part :
       {"index 1: 7 > 4", "index 3: 9 > 4", "chunk_flow.retained_chunks 4",
        "bucket_size_tokens 5"}) {
    CAPTURE(message, part);
    CHECK(message.find(part) != std::string::npos);
  }
  JobSpec fixed = spec;
  fixed.chunk_flow.retained_chunks = 4;
  CHECK(CheckBatch(MakeJob(fixed), lengths).ok());
  fixed = spec;
  fixed.memory.bucket_size_tokens = 5;
  CHECK(CheckBatch(MakeJob(fixed), lengths).ok());

  // A chunk size of the job's that is too large: it is not made smaller.
  spec = ChunkSpec(1, 2, 4, 2);
  spec.chunk_flow.chunk_size_tokens = 6;
  const absl::Status large = CheckBatch(MakeJob(spec), Lengths{9, 20});
  CHECK(GetErrorDetail(large)->limit == 8);
  CHECK(std::string(large.message()).find("chunk_flow.chunk_size_tokens 4") !=
        std::string::npos);
  spec.chunk_flow.chunk_size_tokens = 4;
  CHECK(CheckBatch(MakeJob(spec), Lengths{9, 20}).ok());

  // Whole keys and values: one row and half a byte a token in ten bytes.
  spec = ChunkSpec(1, 1, 10, 1);
  spec.memory.bytes_per_token = 1;
  spec.memory.gather_bytes_per_token = 0.5;
  CHECK(CheckBatch(MakeJob(spec), Lengths{18}).ok());
  CHECK(MustPlan(MakeJob(spec), Lengths{18}).chunk_plan->chunk_size_tokens ==
        1);
  CHECK(MustPlan(MakeJob(spec), Lengths{12}).chunk_plan->chunk_size_tokens ==
        4);
  CHECK(GetErrorDetail(CheckBatch(MakeJob(spec), Lengths{19}))->limit == 18);
}

TEST_CASE("ChunkFlow: uniform jobs and endless chunks are refused",
          "[planner][chunks]") {
  JobSpec spec = ChunkSpec(2, 1, 4, 1);
  spec.parallelism.uniform_micro_batch_count = true;
  const absl::Status uniform = MakePlan(MakeJob(spec), Lengths{1}, {}).status();
  CHECK(uniform.code() == absl::StatusCode::kInvalidArgument);
  CHECK(GetErrorDetail(uniform)->field ==
        "parallelism.uniform_micro_batch_count");
  Plan plan;
  plan.policy = Policy::kChunkFlow;
  plan.chunk_plan.emplace();
  CHECK_FALSE(CheckPlan(MakeJob(spec), Lengths{1}, plan).ok());

  spec = ChunkSpec(2, 1, 4, 1);
  spec.chunk_flow.chunk_size_tokens = 1;
  const absl::Status endless =
      MakePlan(MakeJob(spec), Lengths{5, kMaxTokens}, {}).status();
  CHECK(endless.code() == absl::StatusCode::kResourceExhausted);
  CHECK(GetErrorDetail(endless)->limit == kMaxChunks);
  spec.parallelism.pp_size = 1024;
  CHECK(GetErrorDetail(MakePlan(MakeJob(spec), Lengths{5000}, {}).status())
            ->limit == 4096);
  CHECK(MakePlan(MakeJob(spec), Lengths{4096}, {}).ok());
}

TEST_CASE("ChunkFlow: the toy as plans in a pipeline", "[planner][chunks]") {
  // Attention left out as far as it can be: units of 1e6 tokens would need a
  // model; here the linear part alone makes a chunk's seconds.
  JobSpec spec = ChunkSpec(1, 1, 4, 2);
  spec.cost.flops_formula = FlopsFormula::kExact;
  spec.model.hidden_size = 1 << 20;
  spec.model.head_dim = 1;
  spec.model.intermediate_size = 1 << 20;
  spec.model.vocab_size = 1;
  spec.cost.backward_forward_ratio = 2;
  spec.parallelism.pp_size = 4;
  const auto bubble = [&](int64_t chunk, int64_t retained) {
    spec.memory.bucket_size_tokens = chunk * retained;
    spec.chunk_flow.retained_chunks = retained;
    const Job job = MakeJob(spec);
    const Lengths lengths = {1, 1, 2, 4};
    const Plan plan = MustPlan(job, lengths);
    CHECK(CheckPlan(job, lengths, plan) == absl::OkStatus());
    CHECK(plan.chunk_plan->chunk_size_tokens == chunk);
    return plan.summary.pipeline_bubble;
  };
  // The long sequence goes first, which beats the paper's 47.83 %: makespan 44.
  CHECK(bubble(2, 2) == Approx(1 - 24.0 / 44).epsilon(1e-5));
  CHECK(bubble(4, 1) == Approx(1 - 24.0 / 60).epsilon(1e-5));
  // Recomputing is work too: 26 of 46.
  CHECK(bubble(2, 1) == Approx(1 - 26.0 / 46).epsilon(1e-5));
}

TEST_CASE("ChunkFlow: the paper's outlier, on the paper's job",
          "[planner][chunks]") {
  JobSpec spec = testing::PaperSpec();
  spec.policy = Policy::kChunkFlow;
  const Job job = MakeJob(spec);
  Lengths lengths(255, 700);
  lengths.push_back(1'643'000);
  CHECK_FALSE(CheckBatch(job, lengths, Policy::kOptimized).ok());
  const Plan plan = MustPlan(job, lengths);
  CHECK(CheckPlan(job, lengths, plan) == absl::OkStatus());
  CHECK(plan.chunk_plan->chunk_size_tokens == 26624 * 8);
  CHECK(plan.summary.max_rank_tokens == 26624);
  CHECK(ShareProblem(job, lengths, plan).empty());
}

}  // namespace
}  // namespace skrull
