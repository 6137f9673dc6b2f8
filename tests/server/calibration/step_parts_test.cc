// What time plans are made of, against the planner's own clock.
#include "skrull/server/calibration/step_parts.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/planner.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull::calibration {
namespace {

using testing::MakeJob;
using testing::MustPlan;
using testing::Random;
using testing::RandomLengths;
using testing::RandomSpec;
using testing::UnitSpec;

TEST_CASE(
    "StepParts: sum to the predicted time, in the pipeline where there is "
    "one",
    "[calibration]") {
  const auto seed = GENERATE(range(1, 200));
  Random random(static_cast<uint64_t>(seed));
  const JobSpec spec = RandomSpec(random);
  CAPTURE(seed, testing::ToText(spec));
  const Job job = MakeJob(spec);
  const std::vector<int64_t> lengths = RandomLengths(random, job, 30);
  const Plan plan = MustPlan(job, lengths,
                             random.Pick({Policy::kOptimized, Policy::kSkrull,
                                          Policy::kStaticCp, Policy::kSorted}));
  const StepParts parts = PartsOf(job, plan);
  const double predicted = spec.parallelism.pp_size > 1
                               ? plan.summary.pipeline_seconds
                               : plan.summary.predicted_seconds;
  CHECK(parts.Seconds(job.cost().seconds_per_micro_batch) ==
        Approx(predicted).epsilon(1e-9));
}

TEST_CASE(
    "StepParts: are linear in the numbers where neither path nor overlap "
    "changes",
    "[calibration]") {
  // One rank of local work, then both exchange for a sequence that is longer:
  // by hand, linear(S) = 24 S and attention(S) = 4 S^2 at one pass.
  JobSpec spec = UnitSpec(1, 2, 100);
  spec.cost.seconds_per_micro_batch = 7;
  spec.cost.intra_node.seconds_per_collective = 1000;
  const Job job = MakeJob(spec);
  Plan plan;
  plan.micro_batches.push_back(
      {.placements = {
           {.sequence = 0, .token_count = 10, .first_rank = 0, .degree = 1}}});
  plan.micro_batches.push_back(
      {.placements = {
           {.sequence = 1, .token_count = 20, .first_rank = 0, .degree = 2},
           {.sequence = 2, .token_count = 5, .first_rank = 1, .degree = 1}}});
  const StepParts parts = PartsOf(job, plan);
  const double local = 24.0 * 10 + 4.0 * 100;
  const double sharded = (24.0 * 20 + 4.0 * 400) / 2;
  const double passes = spec.cost.pass_multiplier;
  CHECK(parts.compute == Approx(passes * (local + sharded)));
  CHECK(parts.exchange == Approx(1000 * spec.cost.collectives_per_layer));
  CHECK(parts.micro_batches == 2);
  CHECK(parts.ranks[0].exchange == Approx(parts.exchange));
  CHECK(parts.ranks[0].hiding == 0);
  CHECK(parts.ranks[1].hiding == Approx(passes * (24.0 * 5 + 4.0 * 25)));
  CHECK(parts.ranks[0].attention == Approx(passes * (400 + 4.0 * 400 / 2)));

  // A free link is hidden: all that counts is the busier rank's work.
  spec.cost.intra_node.seconds_per_collective = 0;
  const StepParts hidden = PartsOf(MakeJob(spec), plan);
  CHECK(hidden.exchange == 0);
  CHECK(hidden.compute == Approx(parts.compute + parts.ranks[1].hiding));
}

TEST_CASE("PeakLoads: the fullest micro-batch of each rank", "[calibration]") {
  const auto seed = GENERATE(range(1, 100));
  Random random(static_cast<uint64_t>(seed));
  JobSpec spec = RandomSpec(random);
  spec.memory.gather_bytes_per_token = 0;
  CAPTURE(seed, testing::ToText(spec));
  const Job job = MakeJob(spec);
  const Plan plan =
      MustPlan(job, RandomLengths(random, job, 30), Policy::kOptimized);
  std::vector<int64_t> most(static_cast<size_t>(job.pool().ranks()));
  for (const MicroBatchPlan& micro_batch : plan.micro_batches) {
    const std::vector<int64_t> loads = testing::RankLoads(job, micro_batch);
    for (size_t r = 0; r < loads.size(); ++r) {
      most[r] = std::max(most[r], loads[r]);
    }
  }
  const std::vector<PeakLoad> peaks = PeakLoadsOf(job, plan);
  REQUIRE(peaks.size() == most.size());
  for (size_t r = 0; r < most.size(); ++r) CHECK(peaks[r].rows == most[r]);
}

TEST_CASE("PeakLoads: of two micro-batches, the one whose bytes are more",
          "[calibration]") {
  JobSpec spec = UnitSpec(1, 2, 100);
  spec.memory.bytes_per_token = 1;
  spec.memory.gather_bytes_per_token = 2;
  Plan plan;
  plan.micro_batches.push_back(
      {.placements = {
           {.sequence = 0, .token_count = 30, .first_rank = 0, .degree = 1}}});
  plan.micro_batches.push_back(
      {.placements = {
           {.sequence = 1, .token_count = 20, .first_rank = 0, .degree = 2}}});
  const std::vector<PeakLoad> peaks = PeakLoadsOf(MakeJob(spec), plan);
  CHECK(peaks[0].rows == 10);  // 10 + 2 * 20 bytes, not 30
  CHECK(peaks[0].gathered == 20);
  CHECK(peaks[1].rows == 10);
}

TEST_CASE("PeakLoads: rows that chunks keep at a time", "[calibration]") {
  JobSpec spec = UnitSpec(2, 2, 100);
  spec.chunk_flow.chunk_size_tokens = 50;
  spec.chunk_flow.retained_chunks = 2;
  const Job job = MakeJob(spec);
  const std::vector<int64_t> lengths = {190, 20, 20, 7};
  const Plan plan = MustPlan(job, lengths, Policy::kChunkFlow);
  const std::vector<PeakLoad> peaks = PeakLoadsOf(job, plan);
  REQUIRE(peaks.size() == 4);
  int64_t most = 0;
  for (const PeakLoad& peak : peaks) most = std::max(most, peak.rows);
  CHECK(most == plan.summary.max_rank_tokens);
  CHECK(peaks[0].rows == peaks[1].rows);
  CHECK(peaks[2].rows == peaks[3].rows);
  CHECK(peaks[0].rows != peaks[2].rows);
}

}  // namespace
}  // namespace skrull::calibration
