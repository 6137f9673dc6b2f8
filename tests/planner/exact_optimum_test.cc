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

using testing::MakeJob;
using testing::Random;
using testing::ToText;
using Lengths = std::vector<int64_t>;

constexpr double kUnknown = 1e300;
constexpr int64_t kMostNodes = 3'000'000;

// Four ranks in any shape and scope, under the costs of the paper's job, of the
// unit job or any others, without link tables.
JobSpec RandomFourRanks(Random& random) {
  JobSpec spec = testing::RandomSpec(random);
  ParallelismSpec parallelism = spec.parallelism;
  parallelism.dp_size = random.Pick({1, 2, 4});
  parallelism.cp_size = 4 / parallelism.dp_size;
  parallelism.ranks_per_node = random.Pick({0, 1, 2});
  const OverlapScope overlap = spec.cost.overlap_scope;
  switch (random.Between(0, 2)) {
    case 0:
      spec.cost.intra_node.table.clear();
      if (spec.cost.inter_node) spec.cost.inter_node->table.clear();
      break;
    case 1:
      spec = testing::PaperSpec();
      break;
    default:
      spec = testing::UnitSpec(1, 1, random.Between(5, 200));
      spec.cost.seconds_per_micro_batch = random.Pick({0.0, 100.0, 10000.0});
  }
  spec.cost.overlap_scope = overlap;
  spec.parallelism = parallelism;
  return spec;
}

// At most `most` lengths: long-tailed ones, or as many around one size.
Lengths FewLengths(Random& random, const Job& job, int64_t most) {
  if (random.Chance(0.4)) return testing::RandomLengths(random, job, most);
  const int64_t longest = job.longest_sequence();
  const int64_t top =
      random.Pick<int64_t>({longest, std::min(job.bucket_size(), longest),
                            std::min(2 * job.bucket_size(), longest)});
  Lengths lengths(static_cast<size_t>(random.Between(1, most)));
  for (int64_t& length : lengths) length = random.Between(1, top);
  return lengths;
}

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
