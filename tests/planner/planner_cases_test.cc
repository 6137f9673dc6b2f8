// Small batches with their right outcome, each from a failure seen in practice.
// N = cp_size, C = bucket_size_tokens, ws = dp_size.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "skrull/planner/error.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/tests/planner/naive_checker.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::MicroBatchLengths;
using testing::PaperSpec;
using testing::RankLoads;
using testing::UnitSpec;
using Lengths = std::vector<int64_t>;

// The plan of POLICY_SKRULL, which must be legal.
Plan LegalPlan(const JobSpec& spec, const Lengths& lengths) {
  const Job job = MakeJob(spec);
  Plan plan = testing::MustPlan(job, lengths, Policy::kSkrull);
  CAPTURE(testing::ToText(plan));
  REQUIRE(CheckPlan(job, lengths, plan) == absl::OkStatus());
  REQUIRE(testing::NaiveContract(spec).Problem(lengths, plan).empty());
  return plan;
}

// The lengths of each DP rank's share of each micro-batch, sorted; empty shares
// included.
std::vector<Lengths> GroupShares(const Job& job, const Plan& plan) {
  std::vector<Lengths> shares;
  for (const MicroBatchPlan& mb : plan.micro_batches) {
    const size_t base = shares.size();
    shares.resize(base + static_cast<size_t>(job.pool().dp_size));
    for (const SequencePlacement& p : mb.placements) {
      shares[base + static_cast<size_t>(p.first_rank / job.pool().cp_size)]
          .push_back(p.token_count);
    }
  }
  for (Lengths& share : shares) std::sort(share.begin(), share.end());
  std::sort(shares.begin(), shares.end());
  return shares;
}

TEST_CASE("Planner: case 1, empty batches and lengths below 1 are malformed",
          "[planner][cases]") {
  const Job job = MakeJob(UnitSpec(1, 2, 10));
  const absl::Status empty = MakePlan(job, {}, {}).status();
  CHECK(empty.code() == absl::StatusCode::kInvalidArgument);
  CHECK(GetErrorDetail(empty)->reason == ErrorReason::kEmptyBatch);
  for (const int64_t bad :
       {int64_t{0}, int64_t{-1}, INT64_MIN, kMaxTokens + 1, INT64_MAX}) {
    const absl::Status status = MakePlan(job, Lengths{bad, 5}, {}).status();
    CAPTURE(bad, status.ToString());
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    const ErrorDetail detail = GetErrorDetail(status).value();
    CHECK(detail.reason == ErrorReason::kFieldInvalid);
    CHECK(detail.field == "lengths");
    CHECK(detail.indices == std::vector<int64_t>{0});
  }
  const absl::Status two = MakePlan(job, Lengths{5, 0, 5, -3}, {}).status();
  CHECK(GetErrorDetail(two)->indices == std::vector<int64_t>{1, 3});
}

TEST_CASE("Planner: case 2, one sequence at the edge of its group",
          "[planner][cases]") {
  const JobSpec spec = UnitSpec(1, 2, 10);
  const absl::Status status = MakePlan(MakeJob(spec), Lengths{21}, {}).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  const ErrorDetail detail = GetErrorDetail(status).value();
  CHECK(detail.reason == ErrorReason::kSequenceTooLong);
  CHECK(detail.field == "lengths");
  CHECK(detail.indices == std::vector<int64_t>{0});
  CHECK(detail.limit == 20);
  const std::string message(status.message());
  for (const char* part :
       {"index 0", "21 > 20", "bucket_size_tokens 11", "cp_size 3"}) {
    CAPTURE(message, part);
    CHECK(message.find(part) != std::string::npos);
  }
  const Job job = MakeJob(spec);
  CHECK(RankLoads(job, LegalPlan(spec, {20}).micro_batches.at(0)) ==
        Lengths{10, 10});
  CHECK(RankLoads(job, LegalPlan(spec, {19}).micro_batches.at(0)) ==
        Lengths{10, 9});
}

TEST_CASE("Planner: case 3, a sequence that never fits is refused at once",
          "[planner][cases]") {
  const absl::Status status =
      MakePlan(MakeJob(UnitSpec(1, 8, 16384)), Lengths{131073}, {}).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("Planner: case 4, an exact fit takes a micro-batch of its own",
          "[planner][cases]") {
  const Plan plan = LegalPlan(UnitSpec(1, 8, 16384), {1, 1, 131072});
  auto batches = MicroBatchLengths(plan);
  std::sort(batches.begin(), batches.end());
  CHECK(batches == std::vector<Lengths>{{1, 1}, {131072}});
}

TEST_CASE("Planner: case 5, sequences of the bucket's size stay local",
          "[planner][cases]") {
  const Plan plan = LegalPlan(UnitSpec(1, 8, 16384), Lengths(8, 16384));
  CHECK(plan.micro_batches.size() == 1);
  CHECK(plan.blocks.empty());
  CHECK(plan.summary.sharded_sequence_count == 0);
}

TEST_CASE("Planner: case 6, one rank that holds one sequence at a time",
          "[planner][cases]") {
  CHECK(LegalPlan(UnitSpec(1, 1, 8), Lengths(8, 7)).micro_batches.size() == 8);
}

TEST_CASE("Planner: case 7, roll-backs that the listing gets wrong",
          "[planner][cases]") {
  {
    const JobSpec spec = UnitSpec(1, 2, 10);
    const Plan plan = LegalPlan(spec, {1, 19});
    REQUIRE(plan.micro_batches.size() == 1);
    CHECK(plan.summary.sharded_sequence_count == 2);
    CHECK(RankLoads(MakeJob(spec), plan.micro_batches[0]) == Lengths{10, 10});
  }
  {
    const JobSpec spec = UnitSpec(1, 2, 10);
    const Plan plan = LegalPlan(spec, {1, 2, 17});
    REQUIRE(plan.micro_batches.size() == 1);
    CHECK(RankLoads(MakeJob(spec), plan.micro_batches[0]) == Lengths{10, 10});
  }
  {
    const JobSpec spec = UnitSpec(1, 3, 9);
    const Plan plan = LegalPlan(spec, {7, 7, 10});
    REQUIRE(plan.micro_batches.size() == 1);
    CHECK(RankLoads(MakeJob(spec), plan.micro_batches[0]) == Lengths{8, 8, 8});
    CHECK(plan.summary.roll_back_count == 2);
  }
}

TEST_CASE("Planner: case 8, a feasible batch is never called infeasible",
          "[planner][cases]") {
  CHECK(LegalPlan(UnitSpec(1, 2, 7), {2, 4, 6}).micro_batches.size() == 1);
}

TEST_CASE("Planner: case 9, an exact fit that needs a shard",
          "[planner][cases]") {
  const JobSpec spec = UnitSpec(1, 2, 10);
  const Plan plan = LegalPlan(spec, {6, 6, 8});
  REQUIRE(plan.micro_batches.size() == 1);
  CHECK(RankLoads(MakeJob(spec), plan.micro_batches[0]) == Lengths{10, 10});
}

TEST_CASE("Planner: case 10, three full groups on two DP ranks",
          "[planner][cases]") {
  const JobSpec spec = UnitSpec(2, 2, 10);
  const Plan plan = LegalPlan(spec, {20, 20, 20});
  CHECK(plan.micro_batches.size() == 2);
  CHECK(GroupShares(MakeJob(spec), plan) ==
        std::vector<Lengths>{{}, {20}, {20}, {20}});
}

TEST_CASE("Planner: case 11, unequal sequences fill equal numbers of slots",
          "[planner][cases]") {
  JobSpec spec = UnitSpec(2, 1, 100);
  spec.parallelism.uniform_micro_batch_count = true;
  spec.cost.seconds_per_micro_batch = 1;
  Lengths lengths(5, 95);
  lengths.insert(lengths.end(), 5, 20);
  const Plan plan = LegalPlan(spec, lengths);
  CHECK(plan.micro_batches.size() == 3);
  CHECK(
      GroupShares(MakeJob(spec), plan) ==
      std::vector<Lengths>{{20, 20, 20, 20, 20}, {95}, {95}, {95}, {95}, {95}});
}

TEST_CASE("Planner: case 12, DP ranks without a sequence", "[planner][cases]") {
  const JobSpec two = UnitSpec(2, 1, 128);
  const Plan plan = LegalPlan(two, {100, 100, 100});
  CHECK(plan.micro_batches.size() == 2);
  CHECK(GroupShares(MakeJob(two), plan) ==
        std::vector<Lengths>{{}, {100}, {100}, {100}});
  for (int32_t rank = 0; rank < 2; ++rank) {
    const RankPlan share = MakeRankPlan(plan, "", rank);
    REQUIRE(share.micro_batches.size() == 2);
    for (const RankMicroBatch& mb : share.micro_batches) {
      CHECK(mb.token_weight == Approx(static_cast<double>(mb.row_count) / 300));
      CHECK(mb.segments.empty() == (mb.row_count == 0));
    }
  }
  const JobSpec four = UnitSpec(4, 1, 100);
  const Plan single = LegalPlan(four, {5});
  CHECK(single.micro_batches.size() == 1);
  CHECK(GroupShares(MakeJob(four), single) ==
        std::vector<Lengths>{{}, {}, {}, {5}});
}

TEST_CASE("Planner: case 13, work is balanced, not tokens or counts",
          "[planner][cases]") {
  const JobSpec spec = UnitSpec(2, 1, 100);
  CHECK(GroupShares(MakeJob(spec), LegalPlan(spec, {4, 3, 3, 2})) ==
        std::vector<Lengths>{{2, 4}, {3, 3}});
}

TEST_CASE("Planner: case 15, a sequence shorter than its block",
          "[planner][cases]") {
  const JobSpec spec = UnitSpec(1, 8, 4);
  const Plan plan = LegalPlan(spec, {5});
  REQUIRE(plan.micro_batches.size() == 1);
  CHECK(RankLoads(MakeJob(spec), plan.micro_batches[0]) ==
        Lengths{1, 1, 1, 1, 1, 0, 0, 0});
  for (int32_t rank = 0; rank < 8; ++rank) {
    const RankPlan share = MakeRankPlan(plan, "digest", rank);
    REQUIRE(share.micro_batches.at(0).segments.size() == 1);
    CHECK(share.blocks == std::vector<Block>{{0, 8}});
    CHECK(share.micro_batches[0].token_weight == (rank < 5 ? 0.2 : 0));
  }
  CHECK(LegalPlan(UnitSpec(1, 8, 16), {2}).summary.sharded_sequence_count == 0);
}

TEST_CASE("Planner: case 17, lengths whose squares overflow integers",
          "[planner][cases]") {
  JobSpec spec = UnitSpec(1, 8, 262144);
  spec.model.hidden_size = 8192;
  spec.model.layer_count = 80;
  spec.model.attention_head_count = 64;
  const Plan plan = LegalPlan(spec, {46341, 1643000, 1643000});
  CHECK(plan.micro_batches.size() == 2);
  // Attention alone: 80 layers * 4 h * S^2 over 8 ranks, twice.
  CHECK(plan.summary.predicted_seconds >
        2 * 80 * 4 * 8192.0 * 1643000.0 * 1643000.0 / 8);
}

TEST_CASE("Planner: case 18, odd group and pool sizes plan",
          "[planner][cases]") {
  for (const auto& [dp, cp] : std::vector<std::pair<int32_t, int32_t>>{
           {5, 3}, {1, 6}, {6, 1}, {2, 3}, {3, 2}, {12, 1}, {1, 12}, {4, 3}}) {
    for (const BlockScope scope :
         {BlockScope::kGroup, BlockScope::kSubgroup, BlockScope::kPool}) {
      JobSpec spec = UnitSpec(dp, cp, 10);
      spec.parallelism.block_scope = scope;
      const int64_t most = MakeJob(spec).longest_sequence();
      CHECK(most == int64_t{10} * cp * (scope == BlockScope::kPool ? dp : 1));
      LegalPlan(spec, {1, 2, 3, 9, 10, most, 5, most - 1, 7});
    }
  }
}

// 255 log-normal lengths of at most 8K and a 128K outlier among them.
Lengths MixWithOutlier() {
  std::mt19937_64 engine(7);
  std::lognormal_distribution<double> lengths(6.0, 1.2);
  Lengths mix;
  for (int i = 0; i < 255; ++i) {
    mix.push_back(std::clamp<int64_t>(std::llround(lengths(engine)), 1, 8192));
  }
  mix.insert(mix.begin() + 100, 131072);
  return mix;
}

TEST_CASE("Planner: case 19, an outlier no CP group holds",
          "[planner][cases]") {
  JobSpec spec = PaperSpec();
  spec.memory.bucket_size_tokens = 13312;
  const Lengths lengths = MixWithOutlier();
  const absl::Status status = MakePlan(MakeJob(spec), lengths, {}).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  const std::string message(status.message());
  for (const char* part : {"index 100", "131072 > 106496", "POOL", "cp_size 10",
                           "bucket_size_tokens 16384"}) {
    CAPTURE(message, part);
    CHECK(message.find(part) != std::string::npos);
  }
  spec.parallelism.block_scope = BlockScope::kPool;
  const Plan plan = LegalPlan(spec, lengths);
  int64_t across = 0;
  for (const Block& b : plan.blocks) across += b.degree > 8 ? 1 : 0;
  CHECK(across == 1);
}

TEST_CASE("Planner: case 20, the sequence cap splits a batch of ones",
          "[planner][cases]") {
  const JobSpec spec = UnitSpec(1, 1, 1000000);
  const Job job = MakeJob(spec);
  const Lengths lengths(80000, 1);
  for (const Policy policy : AllPolicies()) {
    if (policy == Policy::kStaticCp || policy == Policy::kSorted) {
      continue;  // one sequence a micro-batch
    }
    const Plan plan = testing::MustPlan(job, lengths, policy);
    CHECK((plan.chunk_plan ? plan.chunk_plan->chunks.size()
                           : plan.micro_batches.size()) == 2);
    CHECK(CheckPlan(job, lengths, plan) == absl::OkStatus());
  }
}

TEST_CASE("Planner: case 22, the paper's mix", "[planner][cases]") {
  const JobSpec spec = PaperSpec();
  std::mt19937_64 engine(22);
  Lengths lengths;
  const auto add = [&](int count, int64_t low, int64_t high) {
    std::uniform_int_distribution<int64_t> of(low, high);
    for (int i = 0; i < count; ++i) lengths.push_back(of(engine));
  };
  add(225, 20, 1023);   // 88 %
  add(29, 1024, 4095);  // to 99 %
  add(1, 4096, 8191);
  lengths.push_back(int64_t{78} * 1024);
  std::shuffle(lengths.begin(), lengths.end(), engine);
  const Plan plan = LegalPlan(spec, lengths);
  const Job job = MakeJob(spec);
  CHECK(plan.summary.max_rank_tokens <= 26624);
  for (const Policy policy : {Policy::kStaticCp, Policy::kPackedStaticCp}) {
    CHECK(plan.summary.predicted_seconds <
          testing::MustPlan(job, lengths, policy).summary.predicted_seconds);
  }
}

TEST_CASE("Planner: what a refusal says would hold the sequence does, just",
          "[planner][cases]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int hints = 0;
  for (int run = 0; run < 1500; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const int64_t tokens = job.longest_sequence() + random.Between(1, 300);
    const std::string message(CheckBatch(job, Lengths{tokens}).message());
    CAPTURE(message, testing::ToText(spec));
    const auto holds = [&](const JobSpec& changed) {
      const absl::StatusOr<Job> other = Job::Create(changed);
      return other.ok() && other->longest_sequence() >= tokens;
    };
    const auto number_after = [&](const std::string& name) -> int64_t {
      const size_t at = message.rfind(name + " ");
      return at == std::string::npos
                 ? 0
                 : std::stoll(message.substr(at + name.size() + 1));
    };
    JobSpec changed = spec;
    if (message.find("BLOCK_SCOPE_POOL") != std::string::npos) {
      ++hints;
      changed.parallelism.block_scope = BlockScope::kPool;
      REQUIRE(holds(changed));
      changed = spec;
    }
    if (const int64_t cp = number_after("cp_size"); cp > 0) {
      ++hints;
      changed.parallelism.cp_size = static_cast<int32_t>(cp);
      REQUIRE(holds(changed));
      changed.parallelism.cp_size = static_cast<int32_t>(cp - 1);
      REQUIRE_FALSE(holds(changed));
      changed = spec;
    }
    if (const int64_t bucket = number_after("bucket_size_tokens"); bucket > 0) {
      ++hints;
      changed.memory.bucket_size_tokens = bucket;
      REQUIRE(holds(changed));
      changed.memory.bucket_size_tokens = bucket - 1;
      REQUIRE_FALSE(holds(changed));
    }
  }
  CHECK(hints > 2000);
}

TEST_CASE(
    "Planner: a plan of too many micro-batches on too many ranks is "
    "refused before it is made",
    "[planner][cases]") {
  // 2^16 ranks that hold one token each: kMaxSlots allows 2^11 micro-batches.
  JobSpec spec = UnitSpec(1, 1 << 16, 1);
  const int64_t most = kMaxSlots >> 16;
  const Policy policy =
      GENERATE(Policy::kSkrull, Policy::kStaticCp, Policy::kDacpOnly,
               Policy::kRoundRobin, Policy::kSorted);
  CAPTURE(PolicyName(policy));
  spec.memory.max_sequences_per_micro_batch = 1;
  const Job job = MakeJob(spec);
  const Lengths lengths(static_cast<size_t>(most + 1), 1);
  const absl::Status status =
      MakePlan(job, lengths, {.key = {}, .policy = policy}).status();
  CAPTURE(std::string(status.message()));
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  REQUIRE(detail.has_value());
  CHECK(detail->reason == ErrorReason::kLimitExceeded);
  CHECK(detail->field == "lengths");
  CHECK(detail->limit == most);
}

}  // namespace
}  // namespace skrull
