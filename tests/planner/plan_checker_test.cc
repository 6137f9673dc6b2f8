// The checker accepts legal plans and names what is wrong with others.
#include "skrull/planner/plan_checker.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "skrull/planner/planner.h"
#include "skrull/tests/planner/naive_checker.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::UnitSpec;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

const std::vector<int64_t> kLengths = {4, 20, 3, 6, 11, 2};

// dp 2 x cp 2, bucket 10; a plan with every feature: two micro-batches, two
// blocks, local sequences on both DP ranks.
//   micro-batch 0: 20 sharded on DP rank 0; 11 sharded and 6 local on DP rank 1
//   micro-batch 1: 4 on rank 0, 3 on rank 1, 2 on rank 2
Plan LegalPlan(const JobSpec& spec) {
  Plan plan;
  plan.micro_batches.resize(2);
  plan.micro_batches[0].placements = {
      {.sequence = 1, .token_count = 20, .first_rank = 0, .degree = 2},
      {.sequence = 3, .token_count = 6, .first_rank = 3, .degree = 1},
      {.sequence = 4, .token_count = 11, .first_rank = 2, .degree = 2}};
  plan.micro_batches[1].placements = {
      {.sequence = 0, .token_count = 4, .first_rank = 0, .degree = 1},
      {.sequence = 2, .token_count = 3, .first_rank = 1, .degree = 1},
      {.sequence = 5, .token_count = 2, .first_rank = 2, .degree = 1}};
  // Figures by hand: rows are 10, 10, 6, 5 + 6 = 11; see the bucket below.
  FinishPlan(MakeJob(spec), kLengths, &plan);
  return plan;
}

JobSpec Spec() {
  JobSpec spec = UnitSpec(2, 2, 11);
  spec.cost.seconds_per_micro_batch = 5;
  spec.cost.intra_node = {10, 1, {}};
  return spec;
}

struct Mutation {
  std::vector<std::string> names;  // what the message must say
  std::function<void(Plan&)> mutate;
};

// One way to break each rule. Figures are left as they were, unless the rule
// would otherwise be met by a wrong figure first.
std::vector<Mutation> Mutations() {
  std::vector<Mutation> all;
  const auto add = [&](std::vector<std::string> names,
                       std::function<void(Plan&)> mutate) {
    all.push_back({std::move(names), std::move(mutate)});
  };
  const auto place = [](Plan& p, size_t mb, size_t i) -> SequencePlacement& {
    return p.micro_batches[mb].placements[i];
  };
  // Coverage.
  for (const int32_t sequence : {-1, 6, INT32_MIN, INT32_MAX}) {
    add({"coverage", "micro-batch 0", "placement 2",
         "sequence " + std::to_string(sequence), "0 .. 5"},
        [=](Plan& p) { place(p, 0, 2).sequence = sequence; });
  }
  add({"coverage", "micro-batch 1", "sequence 1", "second time"}, [=](Plan& p) {
    p.micro_batches[1].placements.push_back(place(p, 0, 0));
  });
  add({"coverage", "micro-batch 0", "sequence 1", "second time"}, [=](Plan& p) {
    p.micro_batches[0].placements.push_back(place(p, 0, 0));
  });
  add({"coverage", "sequence 5", "no micro-batch"}, [](Plan& p) {
    p.micro_batches[1].placements.pop_back();
    FinishPlan(MakeJob(Spec()), kLengths, &p);
  });
  add({"coverage", "sequence 0", "no micro-batch"}, [](Plan& p) {
    p.micro_batches.clear();
    FinishPlan(MakeJob(Spec()), kLengths, &p);
  });
  for (const int32_t tokens : {19, 0, -20, INT32_MIN, INT32_MAX}) {
    add({"coverage", "micro-batch 0", "sequence 1",
         "token_count is " + std::to_string(tokens), "length 20"},
        [=](Plan& p) { place(p, 0, 0).token_count = tokens; });
  }
  // Blocks.
  for (const Block block :
       {Block{-1, 1}, Block{4, 1}, Block{3, 2}, Block{1, 2}, Block{0, 3},
        Block{0, 4}, Block{0, 0}, Block{0, -2}, Block{0, INT32_MAX},
        Block{INT32_MAX, INT32_MAX}, Block{INT32_MIN, INT32_MIN}}) {
    add({"blocks", "micro-batch 0", "sequence 1",
         "first_rank " + std::to_string(block.first_rank),
         "degree " + std::to_string(block.degree)},
        [=](Plan& p) {
          place(p, 0, 0).first_rank = block.first_rank;
          place(p, 0, 0).degree = block.degree;
        });
  }
  // Memory, on each rank.
  for (const int32_t rank : {0, 1}) {
    add({"memory", "micro-batch 0", "rank " + std::to_string(rank),
         "14 tokens > 11"},
        [=](Plan& p) {
          SequencePlacement moved = place(p, 1, 0);
          moved.first_rank = rank;
          p.micro_batches[1].placements.erase(
              p.micro_batches[1].placements.begin());
          p.micro_batches[0].placements.push_back(moved);
          FinishPlan(MakeJob(Spec()), kLengths, &p);
        });
  }
  // Only the odd row of the shard is too much: 11 on ranks 2 and 3 is 6 and 5.
  add({"memory", "micro-batch 0", "rank 2", "12 tokens > 11"}, [=](Plan& p) {
    place(p, 0, 1).first_rank = 2;
    FinishPlan(MakeJob(Spec()), kLengths, &p);
  });
  // Figures of micro-batches.
  for (const int64_t wrong : {int64_t{36}, int64_t{0}, INT64_MIN}) {
    add({"figures", "micro-batch 0", "token_count is " + std::to_string(wrong),
         "recomputed 37"},
        [=](Plan& p) { p.micro_batches[0].token_count = wrong; });
  }
  add({"figures", "micro-batch 0", "max_rank_tokens is 10", "recomputed 11"},
      [](Plan& p) { p.micro_batches[0].max_rank_tokens = 10; });
  for (const double factor : {1 + 1e-8, 0.5, -1.0, 0.0, kNan, kInf}) {
    add({"figures", "micro-batch 1", "predicted_seconds"},
        [=](Plan& p) { p.micro_batches[1].predicted_seconds *= factor; });
    add({"figures", "summary", "predicted_seconds"},
        [=](Plan& p) { p.summary.predicted_seconds *= factor; });
    add({"figures", "summary", "lower_bound_seconds"},
        [=](Plan& p) { p.summary.lower_bound_seconds *= factor; });
  }
  for (const double by : {1e-8, -1e-8, 1.0, kNan, kInf, -kInf}) {
    add({"figures", "summary", "dp_imbalance"},
        [=](Plan& p) { p.summary.dp_imbalance += by; });
    add({"figures", "summary", "rank_imbalance"},
        [=](Plan& p) { p.summary.rank_imbalance += by; });
  }
  add({"figures", "summary", "roll_back_count is -1"},
      [](Plan& p) { p.summary.roll_back_count = -1; });
  add({"figures", "summary", "sharded_sequence_count is 3", "recomputed 2"},
      [](Plan& p) { p.summary.sharded_sequence_count = 3; });
  add({"figures", "summary", "sharded_token_count is 0", "recomputed 31"},
      [](Plan& p) { p.summary.sharded_token_count = 0; });
  add({"figures", "summary", "micro_batch_count is 1", "recomputed 2"},
      [](Plan& p) { p.summary.micro_batch_count = 1; });
  add({"figures", "summary", "max_rank_tokens is 12", "recomputed 11"},
      [](Plan& p) { p.summary.max_rank_tokens = 12; });
  // A micro-batch more changes nothing but the count.
  add({"figures", "summary", "micro_batch_count"},
      [](Plan& p) { p.micro_batches.emplace_back(); });
  // The list of blocks.
  add({"block list", "entry 1", "ends before", "first_rank 2"},
      [](Plan& p) { p.blocks.pop_back(); });
  add({"block list", "entry 2", "first_rank 0, degree 4"},
      [](Plan& p) { p.blocks.push_back({0, 4}); });
  add({"block list", "entry 0"},
      [](Plan& p) { std::swap(p.blocks[0], p.blocks[1]); });
  add({"block list", "entry 1"},
      [](Plan& p) { p.blocks.insert(p.blocks.begin(), p.blocks[0]); });
  add({"block list", "entry 0"}, [](Plan& p) { p.blocks.clear(); });
  return all;
}

TEST_CASE("Checker: a hand-made plan with every feature is legal",
          "[planner][checker]") {
  const Plan plan = LegalPlan(Spec());
  CHECK(CheckPlan(MakeJob(Spec()), kLengths, plan) == absl::OkStatus());
  CHECK(testing::NaiveContract(Spec()).Problem(kLengths, plan).empty());
  // Its figures, by hand. comp(S, g) = (24 S + 4 S^2) / g.
  // Micro-batch 0: rank 0 waits 10 + 20 * 4 bytes and computes 1040; rank 3
  // exchanges 10 + 44 = 54 behind 288 and adds 374.
  CHECK(plan.micro_batches[0].predicted_seconds == 5 + 90 + 1040);
  CHECK(plan.micro_batches[0].max_rank_tokens == 11);
  CHECK(plan.micro_batches[1].predicted_seconds == 5 + 160);
  CHECK(plan.summary.predicted_seconds == 1135 + 165);
  // DP rank 1 is ready after 5 + 288 + 374, then 5 + 64.
  CHECK(plan.summary.dp_imbalance == Approx(1300 / ((1300 + 736) / 2.0) - 1));
}

TEST_CASE("Checker: each mutation of a legal plan is refused by name",
          "[planner][checker]") {
  const Job job = MakeJob(Spec());
  int index = 0;
  for (const Mutation& mutation : Mutations()) {
    Plan plan = LegalPlan(Spec());
    mutation.mutate(plan);
    const absl::Status status = CheckPlan(job, kLengths, plan);
    CAPTURE(index, status.ToString());
    REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
    for (const std::string& name : mutation.names) {
      CAPTURE(name);
      CHECK(std::string(status.message()).find(name) != std::string::npos);
    }
    ++index;
  }
}

TEST_CASE("Checker: the gather budget is held on every rank",
          "[planner][checker]") {
  JobSpec spec = Spec();
  const Plan plan = LegalPlan(spec);
  spec.memory.bytes_per_token = 1;
  spec.memory.device_bytes = 100;
  // Rank 0: 10 rows, 20 gathered; rank 2: 6 and 11; rank 3: 11 and 11.
  spec.memory.gather_bytes_per_token = 4.5;
  CHECK(CheckPlan(MakeJob(spec), kLengths, plan) == absl::OkStatus());
  spec.memory.gather_bytes_per_token = 4.75;
  const absl::Status status = CheckPlan(MakeJob(spec), kLengths, plan);
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  for (const char* part : {"memory", "micro-batch 0", "rank 0", "10 tokens",
                           "20 gathered tokens * 4.75", "100"}) {
    CAPTURE(status.ToString(), part);
    CHECK(std::string(status.message()).find(part) != std::string::npos);
  }
}

TEST_CASE("Checker: a rank gathers for each of its blocks",
          "[planner][checker]") {
  JobSpec spec = UnitSpec(2, 2, 100);
  spec.parallelism.block_scope = BlockScope::kPool;
  spec.memory.bytes_per_token = 1;
  spec.memory.gather_bytes_per_token = 1;
  const std::vector<int64_t> lengths = {40, 20, 8};
  Plan plan;
  plan.micro_batches.resize(1);
  plan.micro_batches[0].placements = {
      {.sequence = 0, .token_count = 40, .first_rank = 0, .degree = 4},
      {.sequence = 1, .token_count = 20, .first_rank = 2, .degree = 2},
      {.sequence = 2, .token_count = 8, .first_rank = 3, .degree = 1}};
  FinishPlan(MakeJob(spec), lengths, &plan);
  // Rank 3: 10 + 10 + 8 rows, 60 gathered.
  CHECK(CheckPlan(MakeJob(spec), lengths, plan) == absl::OkStatus());
  spec.memory.gather_bytes_per_token = 1.25;
  const absl::Status status = CheckPlan(MakeJob(spec), lengths, plan);
  CHECK(std::string(status.message())
            .find("micro-batch 0, rank 3: 28 tokens * 1 bytes + 60 gathered") !=
        std::string::npos);
}

TEST_CASE("Checker: the sequence cap counts each DP rank a block touches",
          "[planner][checker]") {
  JobSpec spec = UnitSpec(3, 1, 100);
  spec.parallelism.block_scope = BlockScope::kPool;
  const std::vector<int64_t> lengths = {8, 1, 1, 1, 9};
  Plan plan;
  plan.micro_batches.resize(1);
  plan.micro_batches[0].placements = {
      {.sequence = 0, .token_count = 8, .first_rank = 0, .degree = 2},
      {.sequence = 1, .token_count = 1, .first_rank = 1, .degree = 1},
      {.sequence = 2, .token_count = 1, .first_rank = 1, .degree = 1},
      {.sequence = 3, .token_count = 1, .first_rank = 2, .degree = 1},
      {.sequence = 4, .token_count = 9, .first_rank = 0, .degree = 3}};
  FinishPlan(MakeJob(spec), lengths, &plan);
  // DP ranks hold 2, 4 and 2.
  spec.memory.max_sequences_per_micro_batch = 4;
  CHECK(CheckPlan(MakeJob(spec), lengths, plan) == absl::OkStatus());
  spec.memory.max_sequences_per_micro_batch = 3;
  const absl::Status status = CheckPlan(MakeJob(spec), lengths, plan);
  CHECK(status.message() ==
        "sequence cap: micro-batch 0, DP rank 1: 4 sequences > 3, "
        "max_sequences_per_micro_batch");
}

TEST_CASE("Checker: the scope of the job decides which blocks are legal",
          "[planner][checker]") {
  const auto check = [](BlockScope scope, Block block) {
    JobSpec spec = UnitSpec(2, 4, 100);
    spec.parallelism.block_scope = scope;
    const Job job = MakeJob(spec);
    const std::vector<int64_t> lengths = {8};
    Plan plan;
    plan.micro_batches.resize(1);
    plan.micro_batches[0].placements = {{0, 8, block.first_rank, block.degree}};
    FinishPlan(job, lengths, &plan);
    return CheckPlan(job, lengths, plan).ok();
  };
  CHECK(check(BlockScope::kGroup, {4, 4}));
  CHECK_FALSE(check(BlockScope::kGroup, {4, 2}));
  CHECK(check(BlockScope::kSubgroup, {4, 2}));
  CHECK_FALSE(check(BlockScope::kSubgroup, {0, 8}));
  CHECK(check(BlockScope::kPool, {0, 8}));
}

TEST_CASE("Checker: lengths that are no batch are refused",
          "[planner][checker]") {
  const Job job = MakeJob(Spec());
  const Plan plan = LegalPlan(Spec());
  CHECK_FALSE(CheckPlan(job, {}, plan).ok());
  CHECK_FALSE(CheckPlan(job, {}, Plan{}).ok());
  for (const int64_t bad :
       {int64_t{0}, int64_t{-20}, int64_t{1} << 31, INT64_MAX, INT64_MIN}) {
    std::vector<int64_t> lengths = kLengths;
    lengths[1] = bad;
    const absl::Status status = CheckPlan(job, lengths, plan);
    CHECK(std::string(status.message()).find("sequence 1") !=
          std::string::npos);
  }
  // A length that equals the placement's only after a cast to int32.
  std::vector<int64_t> lengths = kLengths;
  lengths[0] = 4 + (int64_t{1} << 32);
  CHECK_FALSE(CheckPlan(job, lengths, plan).ok());
}

TEST_CASE("Checker: garbage plans are refused, never crash",
          "[planner][checker]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  const auto garbage = [&]() -> int32_t {
    return random.Chance(0.7)
               ? static_cast<int32_t>(random.Between(-2, 8))
               : static_cast<int32_t>(random.Between(INT32_MIN, INT32_MAX));
  };
  for (int run = 0; run < 20000; ++run) {
    JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const std::vector<int64_t> lengths = testing::RandomLengths(random, job, 5);
    Plan plan;
    if (random.Chance(0.5)) {
      plan = testing::MustPlan(job, lengths);
    } else {
      plan.micro_batches.resize(static_cast<size_t>(random.Between(0, 3)));
      for (int64_t n = random.Between(0, 6);
           n > 0 && !plan.micro_batches.empty(); --n) {
        const auto mb = static_cast<size_t>(random.Between(
            0, static_cast<int64_t>(plan.micro_batches.size()) - 1));
        plan.micro_batches[mb].placements.push_back(
            {garbage(), garbage(), garbage(), garbage()});
      }
    }
    // Damage one number, somewhere.
    if (!plan.micro_batches.empty() &&
        !plan.micro_batches[0].placements.empty()) {
      SequencePlacement& p = plan.micro_batches[0].placements[0];
      switch (random.Between(0, 3)) {
        case 0:
          p.sequence = garbage();
          break;
        case 1:
          p.token_count = garbage();
          break;
        case 2:
          p.first_rank = garbage();
          break;
        default:
          p.degree = garbage();
      }
    }
    const absl::Status status = CheckPlan(job, lengths, plan);
    const std::string problem =
        testing::NaiveContract(spec).Problem(lengths, plan);
    CAPTURE(status.ToString(), problem, testing::ToText(spec),
            testing::ToText(lengths), testing::ToText(plan));
    // What the naive contract refuses the checker refuses, and the reverse,
    // but for the bound's value and the imbalance, which only it recomputes.
    if (!problem.empty()) REQUIRE_FALSE(status.ok());
    if (!status.ok() && problem.empty()) {
      const std::string message(status.message());
      const bool only_checker =
          message.find("lower_bound") != std::string::npos ||
          message.find("dp_imbalance") != std::string::npos;
      REQUIRE(only_checker);
    }
  }
}

}  // namespace
}  // namespace skrull
