// POLICY_OPTIMIZED against the exact optimum of small batches on four ranks.
#include "skrull/tests/planner/exact_optimum.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/tests/planner/brute_force.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::FewLengths;
using testing::MakeJob;
using testing::Random;
using testing::RandomFourRanks;
using testing::ToText;
using Lengths = std::vector<int64_t>;

constexpr double kUnknown = 1e300;
constexpr int64_t kMostNodes = 3'000'000;

TEST_CASE("ExactOptimum: is what trying every plan finds",
          "[planner][optimizer]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 150; ++run) {
    const JobSpec spec = RandomFourRanks(random);
    const Job job = MakeJob(spec);
    const bool group = spec.parallelism.block_scope == BlockScope::kGroup &&
                       spec.parallelism.dp_size <= 2;
    const Lengths lengths = FewLengths(random, job, group ? 5 : 3);
    CAPTURE(ToText(spec), ToText(lengths));
    const double want = group ? testing::BestGroupSeconds(spec, lengths)
                              : testing::BestSeconds(spec, lengths);
    const std::optional<double> exact =
        testing::ExactOptimum(job, lengths, kUnknown, kMostNodes);
    REQUIRE(exact);
    REQUIRE(*exact == Approx(want).epsilon(1e-9));
  }
}

TEST_CASE(
    "POLICY_OPTIMIZED: within 1 % of the optimum on average, 10 % at most",
    "[planner][optimizer]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  double sum = 0;
  int solved = 0;
  constexpr int kRuns = 3000;
  for (int run = 0; run < kRuns; ++run) {
    const JobSpec spec = RandomFourRanks(random);
    const Job job = MakeJob(spec);
    const Lengths lengths = FewLengths(random, job, 8);
    CAPTURE(ToText(spec), ToText(lengths));
    const Plan plan = testing::MustPlan(job, lengths, Policy::kOptimized);
    REQUIRE(CheckPlan(job, lengths, plan) == absl::OkStatus());
    const double seconds = plan.summary.predicted_seconds;
    const std::optional<double> exact =
        testing::ExactOptimum(job, lengths, seconds, kMostNodes);
    if (!exact) continue;
    ++solved;
    REQUIRE(plan.summary.lower_bound_seconds <= *exact * (1 + 1e-9));
    if (*exact == 0) continue;
    REQUIRE(seconds <= *exact * 1.10);
    sum += seconds / *exact - 1;
  }
  CHECK(solved > 0.99 * kRuns);
  CHECK(sum / solved < 0.01);
}

}  // namespace
}  // namespace skrull
