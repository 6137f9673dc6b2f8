// The lower bound's parts by hand, and against exact optima.
#include "skrull/planner/lower_bound.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <vector>

#include "skrull/planner/planner.h"
#include "skrull/tests/planner/exact_optimum.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::Random;
using testing::ToText;
using Lengths = std::vector<int64_t>;

LowerBound BoundOf(const JobSpec& spec, const Lengths& lengths) {
  const Job job = MakeJob(spec);
  return ComputeLowerBound(job, CostModel(job), lengths);
}

// Unit costs: comp(S, 1) = 24 S + 4 S^2, an exchange takes 2 * 1 * 2 bytes a
// token over one collective.
JobSpec TwoRanks(double seconds_per_byte) {
  JobSpec spec = testing::UnitSpec(1, 2, 10);
  spec.cost.collectives_per_layer = 1;
  spec.cost.intra_node.seconds_per_byte = seconds_per_byte;
  return spec;
}

TEST_CASE("ComputeLowerBound: even, alone and overhead by hand",
          "[planner][bound]") {
  JobSpec spec = TwoRanks(0);
  spec.cost.seconds_per_micro_batch = 7;
  // [10, 1]: 640 + 28 rank-seconds on two ranks; 10 halved takes 320.
  LowerBound bound = BoundOf(spec, {10, 1});
  CHECK(bound.even_seconds == 334 + 7);
  CHECK(bound.alone_seconds == 320 + 7);
  CHECK(bound.exchange_seconds == 0);
  CHECK(bound.overhead_seconds == 7);
  CHECK(bound.longest == 0);
  CHECK(bound.seconds == bound.even_seconds);
  // 41 tokens need three micro-batches of 20.
  bound = BoundOf(spec, {1, 20, 20});
  CHECK(bound.overhead_seconds == 21);
  CHECK(bound.longest == 1);
  // An exchange of 20 * 4 bytes at 1 s takes longer than half of the work.
  bound = BoundOf(TwoRanks(13), {20});
  CHECK(bound.alone_seconds == 1040 + 13 * 80);
  CHECK(bound.exchange_seconds == 13 * 80);
}

TEST_CASE("ComputeLowerBound: what must be sharded must be exchanged",
          "[planner][bound]") {
  // Neither fits on one rank of 10, so both are halved: each takes its 1040 of
  // computing and its 80 of exchange on both ranks, and nothing is local that
  // could hide it.
  const JobSpec spec = TwoRanks(1);
  const LowerBound bound = BoundOf(spec, {20, 20});
  CHECK(bound.even_seconds == 2 * 1040);
  CHECK(bound.alone_seconds == 1040 + 80);
  CHECK(bound.traded_seconds == Approx(2 * (1040 + 80)).epsilon(1e-3));
  CHECK(bound.traded_seconds <= 2 * (1040 + 80));
  CHECK(bound.seconds == bound.traded_seconds);
  CHECK(testing::MustPlan(MakeJob(spec), Lengths{20, 20})
            .summary.predicted_seconds == 2 * (1040 + 80));

  // Ten local tokens a rank hide some of it, or all.
  const LowerBound hidden = BoundOf(TwoRanks(1), {20, 10, 10});
  CHECK(hidden.seconds == hidden.even_seconds);
}

TEST_CASE("ComputeLowerBound: no plan of a random small batch is faster",
          "[planner][bound]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int traded = 0;
  for (int run = 0; run < 1500; ++run) {
    JobSpec spec = testing::RandomSpec(random);
    spec.parallelism.dp_size = random.Pick({1, 2, 4});
    spec.parallelism.cp_size = 4 / spec.parallelism.dp_size;
    spec.parallelism.ranks_per_node = random.Pick({0, 1, 2});
    spec.cost.intra_node.table.clear();
    if (spec.cost.inter_node) spec.cost.inter_node->table.clear();
    const Job job = MakeJob(spec);
    Lengths lengths(static_cast<size_t>(random.Between(1, 6)));
    for (int64_t& length : lengths) {
      length = random.Between(1, job.longest_sequence());
    }
    CAPTURE(ToText(spec), ToText(lengths));
    const LowerBound bound = ComputeLowerBound(job, CostModel(job), lengths);
    REQUIRE(bound.seconds >= bound.even_seconds);
    REQUIRE(bound.seconds >= bound.alone_seconds);
    if (bound.traded_seconds >
        std::max(bound.even_seconds, bound.alone_seconds)) {
      ++traded;
    }
    const double planned =
        testing::MustPlan(job, lengths).summary.predicted_seconds;
    const std::optional<double> exact =
        testing::ExactOptimum(job, lengths, planned, 300'000);
    REQUIRE(bound.seconds <= exact.value_or(planned) * (1 + 1e-9));
  }
  CHECK(traded > 50);
}

}  // namespace
}  // namespace skrull
