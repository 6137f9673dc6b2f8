// Shares of ranks: together they are the batch, each token once.
#include "skrull/planner/plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "skrull/planner/planner.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;

TEST_CASE("Plan: the shares of all ranks tile the batch", "[planner][plan]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 500; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const std::vector<int64_t> lengths =
        testing::RandomLengths(random, job, 30);
    const Plan plan = testing::MustPlan(job, lengths);
    CAPTURE(testing::ToText(spec), testing::ToText(lengths));

    std::vector<std::vector<TokenRange>> ranges(lengths.size());
    std::vector<int64_t> rows(plan.micro_batches.size(), 0);
    double weight = 0;
    for (int32_t rank = 0; rank < job.pool().ranks(); ++rank) {
      const RankPlan share = MakeRankPlan(plan, "d1", rank);
      REQUIRE(share.rank == rank);
      REQUIRE(share.digest == "d1");
      REQUIRE(share.blocks == plan.blocks);
      REQUIRE(share.predicted_seconds == plan.summary.predicted_seconds);
      REQUIRE(share.micro_batches.size() == plan.micro_batches.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        const RankMicroBatch& mb = share.micro_batches[i];
        REQUIRE(mb.segments ==
                RankSegments(plan.micro_batches[i].placements, rank));
        REQUIRE(mb.token_count == plan.micro_batches[i].token_count);
        REQUIRE(mb.row_count <= job.bucket_size());
        rows[i] += mb.row_count;
        weight += mb.token_weight;
        int64_t segment_rows = 0;
        for (const RankSegment& s : mb.segments) {
          segment_rows += s.rows();
          for (const TokenRange& range : {s.low, s.high}) {
            if (range.size() > 0) {
              ranges[static_cast<size_t>(s.sequence)].push_back(range);
            }
          }
        }
        REQUIRE(segment_rows == mb.row_count);
      }
    }
    REQUIRE(weight == Approx(1));
    for (size_t i = 0; i < rows.size(); ++i) {
      REQUIRE(rows[i] == plan.micro_batches[i].token_count);
    }
    for (size_t k = 0; k < lengths.size(); ++k) {
      std::sort(ranges[k].begin(), ranges[k].end(),
                [](const TokenRange& a, const TokenRange& b) {
                  return a.begin < b.begin;
                });
      int64_t at = 0;
      for (const TokenRange& range : ranges[k]) {
        REQUIRE(range.begin == at);
        at = range.end;
      }
      REQUIRE(at == lengths[k]);
    }
  }
}

TEST_CASE("Plan: a share carries its key, and ranks outside have none",
          "[planner][plan]") {
  const Job job = MakeJob(testing::UnitSpec(1, 2, 10));
  const std::vector<int64_t> lengths = {3, 15};
  const Plan plan =
      MakePlan(job, lengths, {.key = {"run7", 12, 1}, .policy = {}}).value();
  const RankPlan share = MakeRankPlan(plan, "", 1);
  CHECK(share.job == "run7");
  CHECK(share.step == 12);
  CHECK(share.attempt == 1);
  CHECK(share.batch_token_count == 18);
  const RankPlan outside = MakeRankPlan(plan, "", 2);
  REQUIRE(outside.micro_batches.size() == 1);
  CHECK(outside.micro_batches[0].segments.empty());
  CHECK(outside.micro_batches[0].row_count == 0);
  CHECK(outside.micro_batches[0].token_weight == 0);
}

}  // namespace
}  // namespace skrull
