// Alg. 2 with its corrections, and how its micro-batches join on the pool.
#include "skrull/planner/gds.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "skrull/planner/pool_schedule.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::UnitSpec;
using Lengths = std::vector<int64_t>;

// The lengths of each micro-batch, sorted.
std::vector<Lengths> Split(const JobSpec& spec, const Lengths& lengths) {
  const Job job = MakeJob(spec);
  const CostModel cost(job);
  std::vector<Lengths> split;
  const std::optional<GdsResult> result = RunGds(job, cost, lengths, 1000);
  REQUIRE(result.has_value());
  for (const MicroBatchPlan& mb : result->micro_batches) {
    Lengths& of = split.emplace_back();
    for (const SequencePlacement& p : mb.placements) {
      of.push_back(p.token_count);
    }
    std::sort(of.begin(), of.end());
  }
  std::sort(split.begin(), split.end());
  return split;
}

TEST_CASE("Gds: strided slices pair long with short", "[planner][gds]") {
  // ceil(24 / 12) = 2; ascending 1 2 3 4 6 8 in steps of two.
  CHECK(Split(UnitSpec(1, 1, 14), {8, 6, 1, 2, 3, 4}) ==
        std::vector<Lengths>{{1, 3, 6}, {2, 4, 8}});
}

TEST_CASE("Gds: where strided slices do not fit, another split of that count",
          "[planner][gds]") {
  // Slices {1, 8} and {2, 9}: 11 > 10. {1, 9} and {2, 8} fit exactly.
  CHECK(Split(UnitSpec(1, 1, 10), {1, 2, 8, 9}) ==
        std::vector<Lengths>{{1, 9}, {2, 8}});
}

TEST_CASE("Gds: the count grows until it fits, to one sequence each",
          "[planner][gds]") {
  CHECK(Split(UnitSpec(1, 1, 8), Lengths(8, 7)) ==
        std::vector<Lengths>(8, Lengths{7}));
}

TEST_CASE("Gds: an exact fit ends the search", "[planner][gds]") {
  CHECK(Split(UnitSpec(1, 8, 16384), Lengths(8, 16384)).size() == 1);
  CHECK(Split(UnitSpec(1, 8, 16384), {1, 1, 131072}).size() == 2);
}

TEST_CASE("Gds: DP ranks get balanced work", "[planner][gds]") {
  const JobSpec spec = UnitSpec(4, 1, 1000);
  const Job job = MakeJob(spec);
  const CostModel cost(job);
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 200; ++run) {
    Lengths lengths;
    for (int i = 0; i < 40; ++i) lengths.push_back(random.Between(1, 20));
    std::vector<double> work(4, 0);
    double longest = 0;
    const std::optional<GdsResult> result = RunGds(job, cost, lengths, 1000);
    REQUIRE(result.has_value());
    for (const MicroBatchPlan& mb : result->micro_batches) {
      for (const SequencePlacement& p : mb.placements) {
        work[static_cast<size_t>(p.first_rank)] += cost.Work(p.token_count);
        longest = std::max(longest, cost.Work(p.token_count));
      }
    }
    // Longest-first to the least loaded: apart by one sequence at most.
    const auto [least, most] = std::minmax_element(work.begin(), work.end());
    REQUIRE(*most - *least <= longest);
  }
}

TEST_CASE("PoolSchedule: a DP rank's micro-batches keep their order",
          "[planner][gds]") {
  const Job job = MakeJob(UnitSpec(2, 1, 10));
  const Lengths lengths = {1, 2, 3, 4};
  PoolSchedule schedule(job, lengths);
  CHECK_FALSE(schedule.IsOutlier(10));
  CHECK(schedule.IsOutlier(11));
  schedule.Append(1, {{3, 4, 1, 1}});
  schedule.Append(1, {{0, 1, 1, 1}});
  schedule.Append(0, {{2, 3, 0, 1}, {1, 2, 0, 1}});
  const std::vector<MicroBatchPlan> plans = schedule.Take();
  REQUIRE(plans.size() == 2);
  CHECK(plans[0].placements == std::vector<SequencePlacement>{
                                   {1, 2, 0, 1}, {2, 3, 0, 1}, {3, 4, 1, 1}});
  CHECK(plans[1].placements == std::vector<SequencePlacement>{{0, 1, 1, 1}});
}

TEST_CASE("PoolSchedule: outliers take the smallest blocks, side by side",
          "[planner][gds]") {
  JobSpec spec = UnitSpec(4, 2, 10);
  spec.parallelism.block_scope = BlockScope::kPool;
  const Job job = MakeJob(spec);
  const Lengths lengths = {5, 80, 40, 7, 21};
  PoolSchedule schedule(job, lengths);
  const std::vector<int32_t> outliers = {1, 2, 4};  // longest first
  const std::vector<SequencePlacement> placed =
      schedule.PlaceOutliers(outliers);
  REQUIRE(placed.size() == 3);
  CHECK(placed[0].block() == Block{0, 8});
  CHECK(placed[1].degree == 4);
  CHECK(placed[2].degree == 4);
  // The pool is full with 80; 40 and 21 share the next micro-batch. What DP
  // ranks add goes where they are free.
  schedule.Append(0, {{0, 5, 0, 1}});
  schedule.Append(3, {{3, 7, 6, 1}});
  const std::vector<MicroBatchPlan> plans = schedule.Take();
  REQUIRE(plans.size() == 3);
  CHECK(plans[0].placements.size() == 1);
  CHECK(plans[1].placements.size() == 2);
  CHECK(plans[1].placements[0].first_rank != plans[1].placements[1].first_rank);
  CHECK(plans[2].placements.size() == 2);
}

}  // namespace
}  // namespace skrull
