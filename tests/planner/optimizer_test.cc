// POLICY_OPTIMIZED and what it is made of.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/optimizer/construct.h"
#include "skrull/planner/optimizer/parts.h"
#include "skrull/planner/optimizer/refine.h"
#include "skrull/planner/optimizer/search_state.h"
#include "skrull/planner/optimizer/timeline.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/tests/planner/naive_checker.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::Random;
using testing::ToText;
using Lengths = std::vector<int64_t>;

// 0, 1, ... of lengths sorted descending.
std::vector<int32_t> Names(const Lengths& lengths) {
  std::vector<int32_t> names(lengths.size());
  std::iota(names.begin(), names.end(), 0);
  return names;
}

Lengths Descending(Lengths lengths) {
  std::sort(lengths.rbegin(), lengths.rend());
  return lengths;
}

double StepSeconds(const Job& job, const CostModel& cost,
                   const std::vector<MicroBatchPlan>& micro_batches) {
  StepClock clock(job, cost);
  for (const MicroBatchPlan& mb : micro_batches) clock.Run(mb.placements);
  return clock.seconds();
}

std::vector<MicroBatchPlan> Exported(const SearchState& state,
                                     const Lengths& lengths) {
  std::vector<MicroBatchPlan> out;
  state.Export(Names(lengths), &out);
  return out;
}

// A random spot that fits, if a few tries find one.
Spot RandomSpot(Random& random, const SearchState& state, int32_t sequence) {
  for (int i = 0; i < 20; ++i) {
    const auto d =
        static_cast<int32_t>(random.Between(0, state.num_degrees() - 1));
    const auto rank =
        static_cast<int32_t>(random.Between(0, state.ranks() - 1));
    const Spot spot = state.SpotAround(
        static_cast<int32_t>(random.Between(0, state.micro_batches() - 1)), d,
        rank);
    if (spot.placed() &&
        state.Try(sequence, spot) != SearchState::kDoesNotFit) {
      return spot;
    }
  }
  return {};
}

TEST_CASE("SearchState: agrees with a recount after every step",
          "[planner][optimizer]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 150; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const CostModel cost(job);
    const Lengths lengths = Descending(testing::RandomLengths(random, job, 12));
    CAPTURE(ToText(spec), ToText(lengths));
    SearchState state(job, cost, lengths, 0, job.pool().dp_size);
    state.Reset(3);
    for (int step = 0; step < 40; ++step) {
      const auto k =
          static_cast<int32_t>(random.Between(0, std::ssize(lengths) - 1));
      if (state.spot(k).placed()) {
        state.Remove(k);
      } else if (const Spot spot = RandomSpot(random, state, k);
                 spot.placed()) {
        const double tried = state.Try(k, spot);
        state.Add(k, spot);
        double slowest = 0;
        const Block block = state.LocalBlockOf(spot);
        for (int32_t r = 0; r < block.degree; ++r) {
          slowest = std::max(slowest, state.SlotSeconds(spot.micro_batch,
                                                        block.first_rank + r));
        }
        REQUIRE(tried == Approx(slowest).epsilon(1e-12));
      }
      REQUIRE(state.CheckConsistency() == absl::OkStatus());
    }
  }
}

TEST_CASE("SearchState: its best spot has room, and none it names is faster",
          "[planner][optimizer]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 150; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const CostModel cost(job);
    const Lengths lengths = Descending(testing::RandomLengths(random, job, 12));
    CAPTURE(ToText(spec), ToText(lengths));
    SearchState state(job, cost, lengths, 0, job.pool().dp_size);
    state.Reset(2);
    for (int32_t k = 1; k < std::ssize(lengths); ++k) {
      const Spot spot = RandomSpot(random, state, k);
      if (spot.placed()) state.Add(k, spot);
    }
    for (int32_t d = 1; d < state.num_degrees(); ++d) {
      if (!state.DegreeHolds(d, 0)) continue;
      const Spot best = state.BestSpot(0, 0, d);
      // BestSpot judges room by a block's fullest slots, which Try may know to
      // be different slots; so it may say no where Try says yes.
      if (!best.placed()) continue;
      REQUIRE(state.Try(0, best) != SearchState::kDoesNotFit);
      const Block block = state.LocalBlockOf(best);
      double slowest = 0;
      for (int32_t r = 0; r < block.degree; ++r) {
        slowest = std::max(slowest, state.SlotSeconds(0, block.first_rank + r));
      }
      REQUIRE(state.SpotSeconds(best) == Approx(slowest).epsilon(1e-12));
    }
  }
}

TEST_CASE("Timeline: ends when the step's clock does, and its limits are tight",
          "[planner][optimizer]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int critical_slots = 0;
  for (int run = 0; run < 300; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const CostModel cost(job);
    const Lengths lengths = Descending(testing::RandomLengths(random, job, 12));
    CAPTURE(ToText(spec), ToText(lengths));
    SearchState state(job, cost, lengths, 0, job.pool().dp_size);
    state.Reset(static_cast<int32_t>(std::ssize(lengths)));
    bool all = true;
    for (int32_t k = 0; k < std::ssize(lengths); ++k) {
      const Spot spot = RandomSpot(random, state, k);
      all = all && spot.placed();
      if (spot.placed()) state.Add(k, spot);
    }
    if (!all) continue;
    const Timeline timeline(job, state);
    const double step = StepSeconds(job, cost, Exported(state, lengths));
    REQUIRE(timeline.seconds() == Approx(step).epsilon(1e-9));
    bool some_critical = false;
    for (int32_t i = 0; i < state.micro_batches(); ++i) {
      for (int32_t r = 0; r < state.ranks(); ++r) {
        const int32_t d = r / state.cp_size();
        const double slack = timeline.Limit(i, d, d) - state.SlotSeconds(i, r);
        REQUIRE((slack >= -1e-9 * step || state.SlotSeconds(i, r) == 0));
        if (std::abs(slack) <= 1e-9 * step && state.SlotSeconds(i, r) > 0) {
          some_critical = true;
          ++critical_slots;
        }
      }
    }
    REQUIRE(some_critical);
  }
  CHECK(critical_slots > 100);
}

TEST_CASE("Construct and Refine: states stay legal, and refining never slows",
          "[planner][optimizer]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int built = 0;
  int improved = 0;
  for (int run = 0; run < 300; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const CostModel cost(job);
    const Lengths lengths = Descending(testing::RandomLengths(random, job, 24));
    CAPTURE(ToText(spec), ToText(lengths));
    SearchState state(job, cost, lengths, 0, job.pool().dp_size);
    const auto count = static_cast<int32_t>(random.Between(1, 6));
    const bool done =
        random.Chance(0.5)
            ? ConstructUnsharded(Names(lengths), count, state)
            : ConstructLongestFirst(
                  Names(lengths),
                  {.micro_batches = count,
                   .slot_seconds = cost.Comp(lengths[0], 1).total() / 4,
                   .stretch = 1.1},
                  state);
    REQUIRE(state.CheckConsistency() == absl::OkStatus());
    if (!done) continue;
    ++built;
    const double before = StepSeconds(job, cost, Exported(state, lengths));
    Refine(job, 500, state);
    REQUIRE(state.CheckConsistency() == absl::OkStatus());
    const double after = StepSeconds(job, cost, Exported(state, lengths));
    REQUIRE(after <= before * (1 + 1e-9));
    if (after < before * (1 - 1e-6)) ++improved;
  }
  CHECK(built > 100);
  CHECK(improved > 10);
}

TEST_CASE("Parts: cover the pool and the batch, and balance work",
          "[planner][optimizer]") {
  JobSpec spec = testing::PaperSpec();
  spec.parallelism.dp_size = 64;
  spec.parallelism.block_scope = BlockScope::kPool;
  const Job job = MakeJob(spec);
  const CostModel cost(job);
  Random random(Catch::rngSeed());
  Lengths lengths;
  for (int i = 0; i < 4096; ++i) lengths.push_back(random.Between(4000, 26000));
  const std::vector<Part> parts = SplitIntoParts(job, cost, lengths);
  REQUIRE(parts.size() > 1);
  std::vector<int> seen(lengths.size(), 0);
  int32_t next = 0;
  double least = 1e300;
  double most = 0;
  for (const Part& part : parts) {
    CHECK(part.first_dp_rank == next);
    next += part.dp_ranks;
    CHECK(part.dp_ranks * 8 >= 32);
    double work = 0;
    int64_t last = lengths[static_cast<size_t>(part.descending.front())];
    for (const int32_t k : part.descending) {
      ++seen[static_cast<size_t>(k)];
      CHECK(lengths[static_cast<size_t>(k)] <= last);
      last = lengths[static_cast<size_t>(k)];
      work += cost.Work(last);
    }
    least = std::min(least, work);
    most = std::max(most, work);
  }
  CHECK(next == 64);
  CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
  CHECK(most < least * 1.01);

  // One sequence that only the whole pool holds keeps the pool whole.
  lengths.push_back(int64_t{26624} * 8 * 64);
  CHECK(SplitIntoParts(job, cost, lengths).size() == 1);
}

TEST_CASE(
    "Optimizer: legal, deterministic, and never slower than the policies "
    "it starts from",
    "[planner][optimizer]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 2000; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const Lengths lengths = testing::RandomLengths(random, job, 40);
    CAPTURE(ToText(spec), ToText(lengths));
    const Plan plan = testing::MustPlan(job, lengths, Policy::kOptimized);
    REQUIRE(CheckPlan(job, lengths, plan) == absl::OkStatus());
    REQUIRE(testing::NaiveContract(spec).Problem(lengths, plan).empty());
    REQUIRE(testing::MustPlan(job, lengths, Policy::kOptimized) == plan);
    for (const Policy other :
         {Policy::kSkrull, Policy::kStaticCp, Policy::kPackedStaticCp}) {
      CAPTURE(PolicyName(other));
      REQUIRE(plan.summary.predicted_seconds <=
              testing::MustPlan(job, lengths, other).summary.predicted_seconds);
    }
  }
}

TEST_CASE("Optimizer: searches a large pool in parts, near the bound",
          "[planner][optimizer]") {
  JobSpec spec = testing::PaperSpec();
  spec.parallelism.dp_size = 32;
  spec.parallelism.block_scope = BlockScope::kPool;
  const Job job = MakeJob(spec);
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  Lengths lengths;
  for (int i = 0; i < 2048; ++i) lengths.push_back(random.Between(200, 26000));
  const Plan plan = testing::MustPlan(job, lengths, Policy::kOptimized);
  REQUIRE(CheckPlan(job, lengths, plan) == absl::OkStatus());
  CHECK(plan.summary.predicted_seconds <
        1.08 * plan.summary.lower_bound_seconds);
}

TEST_CASE("Optimizer: more steps never hurt", "[planner][optimizer]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 200; ++run) {
    JobSpec spec = testing::RandomSpec(random);
    const Lengths lengths = testing::RandomLengths(random, MakeJob(spec), 40);
    CAPTURE(ToText(spec), ToText(lengths));
    double last = 1e300;
    for (const int64_t steps : {0, 100, 10000}) {
      spec.optimizer.search_steps = steps;
      const Plan plan =
          testing::MustPlan(MakeJob(spec), lengths, Policy::kOptimized);
      REQUIRE(plan.summary.predicted_seconds <= last * (1 + 1e-12));
      last = plan.summary.predicted_seconds;
    }
  }
}

}  // namespace
}  // namespace skrull
