// POLICY_DACP_ONLY, POLICY_ROUND_ROBIN, POLICY_SORTED, and the heuristics
// without roll-back: placements worked out by hand from the listings, and what
// each promises on random batches.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/dacp.h"
#include "skrull/planner/error.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/planner/pool_schedule.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;
using testing::MakeJob;
using testing::MustPlan;
using testing::Random;
using testing::UnitSpec;
using Lengths = std::vector<int64_t>;
using MicroBatches = std::vector<std::vector<SequencePlacement>>;

constexpr Policy kHeuristics[] = {Policy::kSkrull, Policy::kDacpOnly,
                                  Policy::kRoundRobin};

MicroBatches Placements(const Plan& plan) {
  MicroBatches all;
  for (const MicroBatchPlan& mb : plan.micro_batches) {
    all.push_back(mb.placements);
  }
  return all;
}

// The plan's placements by micro-batch; the plan must be legal.
MicroBatches Placements(const JobSpec& spec, const Lengths& lengths,
                        Policy policy) {
  const Job job = MakeJob(spec);
  const Plan plan = MustPlan(job, lengths, policy);
  CAPTURE(testing::ToText(plan));
  REQUIRE(CheckPlan(job, lengths, plan) == absl::OkStatus());
  return Placements(plan);
}

JobSpec WithGather(JobSpec spec, double gather_bytes_per_token) {
  spec.memory.bytes_per_token = 1;
  spec.memory.gather_bytes_per_token = gather_bytes_per_token;
  return spec;
}

JobSpec WithoutRollBack(JobSpec spec) {
  spec.heuristic.roll_back = false;
  return spec;
}

TEST_CASE("DacpOnly: deals in turn, fills micro-batches in order, runs DACP",
          "[planner][policies]") {
  // Two groups of two ranks, 20 tokens each.
  // DP rank 0 gets 12, 3, 6, 4: 12 + 3 and 6 would be 21, so {12, 3}, {6, 4}.
  //   {3, 12}: 3 -> rank 0; 12 fits no rank, 6 rows on each. {4, 6}: -> 0, 1.
  // DP rank 1 gets 1, 2, 20, 5: {1, 2}, {20}, {5}.
  CHECK(Placements(UnitSpec(2, 2, 10), {12, 1, 3, 2, 6, 20, 4, 5},
                   Policy::kDacpOnly) ==
        MicroBatches{{{0, 12, 0, 2}, {1, 1, 2, 1}, {2, 3, 0, 1}, {3, 2, 3, 1}},
                     {{4, 6, 1, 1}, {5, 20, 2, 2}, {6, 4, 0, 1}},
                     {{7, 5, 2, 1}}});
}

TEST_CASE("DacpOnly: the sequence cap ends a micro-batch",
          "[planner][policies]") {
  JobSpec spec = UnitSpec(1, 2, 10);
  spec.memory.max_sequences_per_micro_batch = 2;
  CHECK(Placements(spec, {1, 2, 3}, Policy::kDacpOnly) ==
        MicroBatches{{{0, 1, 0, 1}, {1, 2, 1, 1}}, {{2, 3, 0, 1}}});
}

TEST_CASE("DacpOnly: what DACP refuses ends a micro-batch earlier",
          "[planner][policies]") {
  // 20 tokens fit two ranks, but half a byte for each gathered token does not:
  // 6 -> 0, 7 -> 1, and sharding any of the three takes more than is left.
  CHECK(Placements(WithGather(UnitSpec(1, 2, 10), 0.5), {7, 7, 6},
                   Policy::kDacpOnly) ==
        MicroBatches{{{0, 7, 0, 1}, {1, 7, 1, 1}}, {{2, 6, 0, 1}}});
}

TEST_CASE(
    "DacpOnly: each micro-batch is in order and takes one sequence less "
    "than DACP refuses",
    "[planner][policies]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int refused = 0;
  for (int run = 0; run < 2000; ++run) {
    JobSpec spec = UnitSpec(static_cast<int32_t>(random.Between(1, 3)),
                            static_cast<int32_t>(random.Between(1, 4)),
                            random.Between(4, 40));
    if (random.Chance(0.7)) {
      spec = WithGather(spec, random.Pick({0.02, 0.1, 0.5}));
    }
    if (random.Chance(0.2)) spec.memory.max_sequences_per_micro_batch = 5;
    const Job job = MakeJob(spec);
    const CostModel cost(job);
    const Lengths lengths = testing::RandomLengths(random, job, 60);
    std::vector<double> work;
    for (const int64_t s : lengths) work.push_back(cost.Work(s));
    const Plan plan = MustPlan(job, lengths, Policy::kDacpOnly);
    CAPTURE(testing::ToText(spec), testing::ToText(lengths));
    std::vector<int64_t> next(static_cast<size_t>(job.pool().dp_size));
    std::iota(next.begin(), next.end(), 0);
    Placement placement(job, lengths, work);
    for (const MicroBatchPlan& mb : plan.micro_batches) {
      std::map<int32_t, std::vector<int32_t>> shares;
      for (const SequencePlacement& p : mb.placements) {
        shares[p.first_rank / job.pool().cp_size].push_back(p.sequence);
      }
      for (auto& [dp_rank, share] : shares) {
        int64_t& expected = next[static_cast<size_t>(dp_rank)];
        int64_t tokens = 0;
        for (const int32_t k : share) {
          REQUIRE(k == expected);
          expected += job.pool().dp_size;
          tokens += lengths[static_cast<size_t>(k)];
        }
        if (expected >= std::ssize(lengths)) continue;
        // Why the next sequence is not in it.
        tokens += lengths[static_cast<size_t>(expected)];
        if (tokens > job.bucket_size() * job.pool().cp_size ||
            std::ssize(share) == job.max_sequences_per_micro_batch()) {
          continue;
        }
        ++refused;
        share.push_back(static_cast<int32_t>(expected));
        std::sort(share.begin(), share.end(), [&](int32_t a, int32_t b) {
          return std::pair(lengths[static_cast<size_t>(a)], a) <
                 std::pair(lengths[static_cast<size_t>(b)], b);
        });
        REQUIRE(RunDacp(share, placement) ==
                DacpVerdict::kNeedsMoreMicroBatches);
      }
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("RoundRobin: the emptiest rank is next, in batch order",
          "[planner][policies]") {
  // 4 -> 0; 2, 1, 4 -> 1; 8 takes 4 rows of each, and rank 1 has 3: its first,
  // 2, is rolled back. Alg. 1 takes 1, 2, 4, 4, 8: 1 and 4 -> 0, 2 and 4 -> 1.
  const JobSpec spec = UnitSpec(1, 2, 10);
  const Lengths lengths = {4, 2, 1, 4, 8};
  CHECK(Placements(spec, lengths, Policy::kRoundRobin) ==
        MicroBatches{{{0, 4, 0, 1},
                      {1, 2, 0, 2},
                      {2, 1, 1, 1},
                      {3, 4, 1, 1},
                      {4, 8, 0, 2}}});
  CHECK(Placements(spec, lengths, Policy::kSkrull) ==
        MicroBatches{{{0, 4, 0, 1},
                      {1, 2, 1, 1},
                      {2, 1, 0, 1},
                      {3, 4, 1, 1},
                      {4, 8, 0, 2}}});
}

TEST_CASE("RoundRobin: roll-backs cascade as DACP's do",
          "[planner][policies]") {
  const Job job = MakeJob(UnitSpec(1, 3, 9));
  const Plan plan = MustPlan(job, Lengths{7, 10, 7}, Policy::kRoundRobin);
  REQUIRE(plan.micro_batches.size() == 1);
  CHECK(testing::RankLoads(job, plan.micro_batches[0]) == Lengths{8, 8, 8});
  // 7 -> 0; 10 -> 4, 3, 3 rows are 2 too many on rank 0: 7 is rolled back, and
  // both are sharded; the second 7 fits no rank.
  CHECK(plan.summary.roll_back_count == 1);
  CHECK(plan.summary.sharded_sequence_count == 3);
}

TEST_CASE("RoundRobin: GDS splits the batch as for POLICY_SKRULL",
          "[planner][policies]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int different = 0;
  for (int run = 0; run < 1000; ++run) {
    JobSpec spec = testing::RandomSpec(random);
    spec.memory.gather_bytes_per_token = 0;
    const Job job = MakeJob(spec);
    const Lengths lengths = testing::RandomLengths(random, job, 60);
    const Plan skrull = MustPlan(job, lengths, Policy::kSkrull);
    const Plan round_robin = MustPlan(job, lengths, Policy::kRoundRobin);
    CAPTURE(testing::ToText(spec), testing::ToText(lengths));
    REQUIRE(round_robin.micro_batches.size() == skrull.micro_batches.size());
    for (size_t i = 0; i < skrull.micro_batches.size(); ++i) {
      const auto split = [&](const Plan& plan) {
        std::vector<std::pair<int32_t, int32_t>> of;  // sequence, DP rank
        for (const SequencePlacement& p : plan.micro_batches[i].placements) {
          of.emplace_back(p.sequence, p.first_rank / job.pool().cp_size);
        }
        return of;
      };
      REQUIRE(split(round_robin) == split(skrull));
    }
    different += Placements(round_robin) != Placements(skrull) ? 1 : 0;
  }
  CHECK(different > 200);
}

TEST_CASE("Sorted: deals the batch by length, one sequence a micro-batch",
          "[planner][policies]") {
  // Ascending 1, 3, 5, 5, 7, 20: in pairs, the lower index first where equal.
  CHECK(Placements(UnitSpec(2, 2, 10), {5, 20, 1, 7, 3, 5}, Policy::kSorted) ==
        MicroBatches{{{2, 1, 0, 2}, {4, 3, 2, 2}},
                     {{0, 5, 0, 2}, {5, 5, 2, 2}},
                     {{1, 20, 2, 2}, {3, 7, 0, 2}}});
  // In batch order DP rank 0 has 5, 1 and 3, DP rank 1 has 20, 7 and 5.
  CHECK(
      Placements(UnitSpec(2, 2, 10), {5, 20, 1, 7, 3, 5}, Policy::kStaticCp) ==
      MicroBatches{{{0, 5, 0, 2}, {1, 20, 2, 2}},
                   {{2, 1, 0, 2}, {3, 7, 2, 2}},
                   {{4, 3, 0, 2}, {5, 5, 2, 2}}});
}

TEST_CASE("Policies: sequences that no group holds take larger blocks",
          "[planner][policies]") {
  JobSpec spec = UnitSpec(2, 2, 10);
  spec.parallelism.block_scope = BlockScope::kPool;
  for (const Policy policy :
       {Policy::kDacpOnly, Policy::kRoundRobin, Policy::kSorted}) {
    CAPTURE(PolicyName(policy));
    const MicroBatches all = Placements(spec, {3, 30, 4}, policy);
    REQUIRE(all.size() == 2);
    CHECK(all[0] == std::vector<SequencePlacement>{{1, 30, 0, 4}});
  }
}

// The refusal of a batch whose lengths are in range.
absl::Status Refusal(const JobSpec& spec, const Lengths& lengths,
                     Policy policy) {
  return MakePlan(MakeJob(spec), lengths, {.key = {}, .policy = policy})
      .status();
}

TEST_CASE("Without roll-back: a rank that overflows is a simulated OOM",
          "[planner][policies]") {
  for (const Policy policy : kHeuristics) {
    // 1 -> 0; 19 takes 10 and 9 rows.
    const absl::Status status =
        Refusal(WithoutRollBack(UnitSpec(1, 2, 10)), {1, 19}, policy);
    const std::string message(status.message());
    CAPTURE(message);
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    REQUIRE(detail.has_value());
    CHECK(detail->reason == ErrorReason::kSimulatedOom);
    CHECK(detail->field == "heuristic.roll_back");
    CHECK(detail->limit == 10);
    CHECK_THAT(message, Contains(PolicyName(policy)));
    CHECK_THAT(message, Contains("out of memory (simulated)"));
    CHECK_THAT(message, Contains("micro-batch 0 rank 0 holds 11 tokens"));
    CHECK_THAT(message, Contains("bucket_size_tokens 10"));
    CHECK_THAT(message, Contains("with roll-back the batch is planned"));
  }
}

TEST_CASE("Without roll-back: the first micro-batch to overflow is named",
          "[planner][policies]") {
  const JobSpec spec = WithoutRollBack(UnitSpec(2, 2, 10));
  // DP rank 0: {5, 5, 1}. DP rank 1: {20}, {1, 19}.
  CHECK_THAT(
      std::string(
          Refusal(spec, {5, 20, 5, 1, 1, 19}, Policy::kDacpOnly).message()),
      Contains("micro-batch 1 rank 2 holds 11 tokens"));
  // DP rank 0: {20}, {1, 19}. DP rank 1: {1, 19}, which is earlier.
  CHECK_THAT(
      std::string(
          Refusal(spec, {20, 1, 1, 19, 19}, Policy::kDacpOnly).message()),
      Contains("micro-batch 0 rank 2 holds 11 tokens"));
  // Both in the first micro-batch: the lower rank. 2 -> rank 0, 19 -> 10 and 9.
  CHECK_THAT(
      std::string(Refusal(spec, {2, 1, 18, 19}, Policy::kDacpOnly).message()),
      Contains("micro-batch 0 rank 0 holds 11 tokens"));
}

TEST_CASE("Without roll-back: gathered K/V can be what overflows",
          "[planner][policies]") {
  // 6 -> 0, 7 -> 1; 7 takes 4 and 3 rows, and 3.5 bytes more on both.
  const JobSpec spec = WithoutRollBack(WithGather(UnitSpec(1, 2, 10), 0.5));
  for (const Policy policy : {Policy::kSkrull, Policy::kDacpOnly}) {
    CHECK_THAT(std::string(Refusal(spec, {7, 7, 6}, policy).message()),
               Contains("rank 0 holds 10 tokens and gathers the K/V of 7, more "
                        "than its budget of 10 bytes"));
  }
}

TEST_CASE("Without roll-back: refused just where a roll-back would be needed",
          "[planner][policies]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int refused = 0;
  int planned = 0;
  for (int run = 0; run < 3000; ++run) {
    JobSpec spec = testing::RandomSpec(random);
    // With it a refusal means more micro-batches, roll-backs or not.
    spec.memory.gather_bytes_per_token = 0;
    const Job job = MakeJob(spec);
    const Job without = MakeJob(WithoutRollBack(spec));
    const Lengths lengths = testing::RandomLengths(random, job, 60);
    for (const Policy policy : kHeuristics) {
      CAPTURE(PolicyName(policy), testing::ToText(spec),
              testing::ToText(lengths));
      const PlanOptions options{.key = {}, .policy = policy};
      const Plan plan = MustPlan(job, lengths, policy);
      const absl::StatusOr<Plan> bare = MakePlan(without, lengths, options);
      REQUIRE(bare.ok() == (plan.summary.roll_back_count == 0));
      if (bare.ok()) {
        ++planned;
        REQUIRE(*bare == plan);
      } else {
        ++refused;
        REQUIRE(GetErrorDetail(bare.status())->reason ==
                ErrorReason::kSimulatedOom);
      }
    }
  }
  CHECK(planned > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("Without roll-back: policies without one do not change",
          "[planner][policies]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 300; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const Job without = MakeJob(WithoutRollBack(spec));
    const Lengths lengths = testing::RandomLengths(random, job, 60);
    for (const Policy policy : {Policy::kStaticCp, Policy::kPackedStaticCp,
                                Policy::kSorted, Policy::kOptimized}) {
      CAPTURE(PolicyName(policy), testing::ToText(spec),
              testing::ToText(lengths));
      REQUIRE(MustPlan(without, lengths, policy) ==
              MustPlan(job, lengths, policy));
    }
  }
}

}  // namespace
}  // namespace skrull
