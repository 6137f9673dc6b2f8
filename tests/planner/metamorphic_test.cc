// What must not change when the question changes in a way that does not matter
// (case 21).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <vector>

#include "skrull/planner/planner.h"
#include "skrull/tests/planner/brute_force.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::MustPlan;
using testing::Random;

// Loads of all ranks of all micro-batches, ascending.
std::vector<int64_t> AllLoads(const Job& job, const Plan& plan) {
  std::vector<int64_t> loads;
  for (const MicroBatchPlan& mb : plan.micro_batches) {
    const std::vector<int64_t> of = testing::RankLoads(job, mb);
    loads.insert(loads.end(), of.begin(), of.end());
  }
  std::sort(loads.begin(), loads.end());
  return loads;
}

void Shuffle(Random& random, std::vector<int64_t>& values) {
  for (auto i = static_cast<int64_t>(values.size()) - 1; i > 0; --i) {
    std::swap(values[static_cast<size_t>(i)],
              values[static_cast<size_t>(random.Between(0, i))]);
  }
}

void ScaleCosts(double factor, JobSpec& spec) {
  spec.cost.seconds_per_flop *= factor;
  spec.cost.seconds_per_micro_batch *= factor;
  const auto scale = [&](LinkCost& link) {
    link.seconds_per_collective *= factor;
    link.seconds_per_byte *= factor;
    for (LinkTablePoint& p : link.table) p.seconds *= factor;
  };
  scale(spec.cost.intra_node);
  if (spec.cost.inter_node) scale(*spec.cost.inter_node);
}

TEST_CASE("Planner: case 21, the order of a batch changes no load",
          "[planner][metamorphic]") {
  // Not of the static policies, which take sequences as they come.
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 2000; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const std::vector<int64_t> lengths =
        testing::RandomLengths(random, job, 60);
    std::vector<int64_t> shuffled = lengths;
    Shuffle(random, shuffled);
    const Plan a = MustPlan(job, lengths, Policy::kSkrull);
    const Plan b = MustPlan(job, shuffled, Policy::kSkrull);
    CAPTURE(testing::ToText(spec), testing::ToText(lengths),
            testing::ToText(shuffled));
    REQUIRE(a.micro_batches.size() == b.micro_batches.size());
    REQUIRE(AllLoads(job, a) == AllLoads(job, b));
    REQUIRE(b.summary.predicted_seconds ==
            Approx(a.summary.predicted_seconds).epsilon(1e-12));
  }
}

TEST_CASE("Planner: case 21, scaling all costs changes no placement",
          "[planner][metamorphic]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 2000; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const std::vector<int64_t> lengths =
        testing::RandomLengths(random, job, 60);
    for (const Policy policy : AllPolicies()) {
      if (!CheckBatch(job, lengths, policy).ok()) continue;
      // The optimizer and the balance of chunks compare seconds, which scale
      // without rounding by powers of two only; the others compare FLOPs and
      // tokens.
      const bool seconds =
          policy == Policy::kOptimized || policy == Policy::kChunkFlow;
      const double factor = seconds ? 8 : 7;
      JobSpec scaled_spec = spec;
      ScaleCosts(factor, scaled_spec);
      const Job scaled = MakeJob(scaled_spec);
      const Plan a = MustPlan(job, lengths, policy);
      const Plan b = MustPlan(scaled, lengths, policy);
      CAPTURE(PolicyName(policy), testing::ToText(spec),
              testing::ToText(lengths));
      REQUIRE(a.chunk_plan.has_value() == b.chunk_plan.has_value());
      for (size_t i = 0; a.chunk_plan && i < a.chunk_plan->chunks.size(); ++i) {
        const Chunk& chunk = a.chunk_plan->chunks[i];
        REQUIRE(chunk.pieces == b.chunk_plan->chunks[i].pieces);
        REQUIRE(chunk.dp_rank == b.chunk_plan->chunks[i].dp_rank);
      }
      REQUIRE(a.micro_batches.size() == b.micro_batches.size());
      for (size_t i = 0; i < a.micro_batches.size(); ++i) {
        REQUIRE(a.micro_batches[i].placements == b.micro_batches[i].placements);
      }
      REQUIRE(b.summary.predicted_seconds ==
              Approx(factor * a.summary.predicted_seconds).epsilon(1e-12));
      REQUIRE(b.summary.lower_bound_seconds ==
              Approx(factor * a.summary.lower_bound_seconds).epsilon(1e-12));
    }
  }
}

TEST_CASE("Planner: case 21, a larger bucket never worsens the optimum",
          "[planner][metamorphic]") {
  // Exact on brute-forced sizes; the heuristic stays at or above the optimum of
  // either bucket.
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 300; ++run) {
    JobSpec spec = testing::UnitSpec(static_cast<int32_t>(random.Between(1, 2)),
                                     static_cast<int32_t>(random.Between(1, 3)),
                                     random.Between(2, 8));
    spec.cost.seconds_per_micro_batch = random.Pick({0.0, 50.0});
    spec.cost.intra_node = {
        random.Pick({0.0, 30.0}), random.Pick({0.0, 1.0}), {}};
    const std::vector<int64_t> lengths =
        testing::RandomLengths(random, MakeJob(spec), 4);
    const double small = testing::BestGroupSeconds(spec, lengths);
    const double planned =
        MustPlan(MakeJob(spec), lengths).summary.predicted_seconds;
    spec.memory.bucket_size_tokens = *spec.memory.bucket_size_tokens + 3;
    const double large = testing::BestGroupSeconds(spec, lengths);
    CAPTURE(testing::ToText(spec), testing::ToText(lengths));
    REQUIRE(large <= small * (1 + 1e-9));
    REQUIRE(planned >= small * (1 - 1e-9));
    REQUIRE(MustPlan(MakeJob(spec), lengths).summary.predicted_seconds >=
            large * (1 - 1e-9));
  }
}

TEST_CASE("Planner: numbers a policy has no use for change no placement",
          "[planner][metamorphic]") {
  Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 500; ++run) {
    JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const std::vector<int64_t> lengths =
        testing::RandomLengths(random, job, 60);
    spec.parallelism.tp_size = 4;
    spec.parallelism.pp_size = 2;
    PlanOptions options{.key = {"other", 7, 2}, .policy = Policy::kSkrull};
    options.calibration_epoch = 3;
    const absl::StatusOr<Plan> other =
        MakePlan(MakeJob(spec), lengths, options);
    REQUIRE(other.ok());
    Plan plan = MustPlan(job, lengths, Policy::kSkrull);
    CHECK(other->summary.pipeline_seconds > 0);
    plan.summary.pipeline_seconds = other->summary.pipeline_seconds;
    plan.summary.pipeline_bubble = other->summary.pipeline_bubble;
    CHECK(other->key == options.key);
    CHECK(other->calibration_epoch == 3);
    plan.key = options.key;
    plan.calibration_epoch = 3;
    REQUIRE(plan == *other);
  }
}

}  // namespace
}  // namespace skrull
