// What a plan's explanation says.
#include "skrull/planner/explain.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using Catch::Contains;
using testing::MakeJob;
using testing::Random;
using testing::ToText;
using Lengths = std::vector<int64_t>;

Explanation Explained(const JobSpec& spec, const Lengths& lengths,
                      Policy policy = Policy::kOptimized) {
  const Plan plan = testing::MustPlan(MakeJob(spec), lengths, policy);
  REQUIRE(plan.summary.explanation.has_value());
  return *plan.summary.explanation;
}

TEST_CASE("Explain: work that is spread evenly", "[planner][explain]") {
  const Explanation e =
      Explained(testing::UnitSpec(1, 4, 100), {50, 50, 50, 50});
  CHECK(e.bottleneck == Bottleneck::kWork);
  CHECK(e.rank == 0);
  CHECK(e.sequence_share == 1);
  CHECK_THAT(e.text, Contains("The batch's work is the limit"));
  // Nothing but more ranks would help.
  CHECK(e.what_ifs.empty());
}

TEST_CASE("Explain: one long sequence, and the scope that would help",
          "[planner][explain]") {
  const Explanation e = Explained(testing::UnitSpec(4, 2, 100), {5, 200, 5});
  CHECK(e.bottleneck == Bottleneck::kSequence);
  CHECK(e.sequence == 1);
  CHECK(e.sequence_share > 0.9);
  CHECK_THAT(e.text, Contains("sequence 1 (200 tokens) alone takes"));
  REQUIRE(!e.what_ifs.empty());
  CHECK(e.what_ifs.front().field == "parallelism.block_scope");
  CHECK(e.what_ifs.front().value == "BLOCK_SCOPE_POOL");
  CHECK_THAT(e.text, Contains("parallelism.block_scope BLOCK_SCOPE_POOL would "
                              "lower the bound"));
}

TEST_CASE("Explain: a sequence that is mostly exchange", "[planner][explain]") {
  JobSpec spec = testing::UnitSpec(1, 2, 10);
  spec.cost.intra_node.seconds_per_byte = 100;
  const Explanation e = Explained(spec, {20});
  CHECK(e.bottleneck == Bottleneck::kExchange);
  CHECK_THAT(e.text, Contains("The exchange of one sequence is the limit"));
}

TEST_CASE("Explain: exchange that nothing hides", "[planner][explain]") {
  JobSpec spec = testing::UnitSpec(1, 2, 10);
  spec.cost.intra_node.seconds_per_byte = 1;
  const Explanation e = Explained(spec, {20, 20});
  CHECK(e.bottleneck == Bottleneck::kExchange);
  CHECK_THAT(e.text, Contains("exchange more than other work can hide"));
}

TEST_CASE("Explain: overhead of micro-batches, and the bucket that would help",
          "[planner][explain]") {
  JobSpec spec = testing::UnitSpec(1, 1, 10);
  spec.cost.seconds_per_micro_batch = 1e6;
  const Explanation e = Explained(spec, {10, 10, 10, 10});
  CHECK(e.bottleneck == Bottleneck::kOverhead);
  REQUIRE(e.what_ifs.size() == 1);
  CHECK(e.what_ifs[0].field == "memory.bucket_size_tokens");
  CHECK(e.what_ifs[0].value == "20");
  CHECK(e.what_ifs[0].lower_bound_seconds > 2e6);
  CHECK(e.what_ifs[0].lower_bound_seconds < 2.1e6);
}

TEST_CASE("Explain: a plan far from the bound", "[planner][explain]") {
  const Lengths lengths = {50, 50, 50, 50, 50, 50, 50, 50};
  JobSpec spec = testing::UnitSpec(1, 4, 100);
  spec.cost.intra_node.seconds_per_byte = 100;
  const Explanation e = Explained(spec, lengths, Policy::kStaticCp);
  CHECK(e.bottleneck == Bottleneck::kPlacement);
  CHECK_THAT(e.text, Contains("The plan is the limit"));
  CHECK_THAT(e.text, Contains("POLICY_OPTIMIZED"));
}

TEST_CASE("Explain: what-ifs hold, on random batches", "[planner][explain]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int what_ifs = 0;
  for (int run = 0; run < 500; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const Lengths lengths = testing::RandomLengths(random, job, 30);
    CAPTURE(ToText(spec), ToText(lengths));
    const Plan plan = testing::MustPlan(job, lengths, Policy::kOptimized);
    const Explanation& e = plan.summary.explanation.value();
    REQUIRE(e.bottleneck != Bottleneck::kUnspecified);
    REQUIRE(e.what_ifs.size() <= 4);
    double last = 0;
    for (const WhatIf& what_if : e.what_ifs) {
      ++what_ifs;
      REQUIRE(what_if.lower_bound_seconds >= last);
      REQUIRE(what_if.lower_bound_seconds < plan.summary.lower_bound_seconds);
      last = what_if.lower_bound_seconds;
      JobSpec changed = spec;
      if (what_if.field == "memory.bucket_size_tokens") {
        changed.memory.bucket_size_tokens = std::stoll(what_if.value);
      } else if (what_if.field == "parallelism.cp_size") {
        const int32_t ranks = job.pool().ranks();
        changed.parallelism.cp_size = std::stoi(what_if.value);
        changed.parallelism.dp_size = ranks / changed.parallelism.cp_size;
      } else {
        changed.parallelism.block_scope = what_if.value == "BLOCK_SCOPE_POOL"
                                              ? BlockScope::kPool
                                              : BlockScope::kSubgroup;
      }
      REQUIRE(testing::MustPlan(MakeJob(changed), lengths, Policy::kOptimized)
                  .summary.lower_bound_seconds ==
              Approx(what_if.lower_bound_seconds).epsilon(1e-9));
    }
  }
  CHECK(what_ifs > 100);
}

}  // namespace
}  // namespace skrull
