// RankTimeline: examples by hand, and random plans against the objective worked
// out rank by rank from CostModel's terms alone.
#include "skrull/planner/rank_timeline.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <vector>

#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::MustPlan;
using testing::Random;
using testing::UnitSpec;

using Placements = std::vector<SequencePlacement>;

// "rank activity@micro-batch start-end", a line a span.
std::string SpansOf(const JobSpec& spec, const std::vector<Placements>& steps) {
  const Job job = MakeJob(spec);
  Plan plan;
  for (const Placements& placements : steps) {
    plan.micro_batches.push_back({.placements = placements});
  }
  std::ostringstream out;
  for (const RankSpan& span : StepSpans(job, plan)) {
    out << span.rank << " " << RankActivityName(span.activity) << "@"
        << span.micro_batch << " " << span.start << "-" << span.end << "\n";
  }
  return out.str();
}

// Alone, S tokens take 24 S linear and 4 S^2 attention: 1 -> 24 + 4, 4 -> 96 +
// 64, 8 -> 192 + 256.
JobSpec TwoByTwo() {
  JobSpec spec = UnitSpec(2, 2, 100);
  spec.parallelism.block_scope = BlockScope::kPool;
  spec.cost.seconds_per_micro_batch = 10;
  spec.cost.intra_node = {50, 0, {}};
  return spec;
}

TEST_CASE("RankTimeline: local work hides the exchange, by layer",
          "[planner][timeline]") {
  // 8 over ranks 0 and 1 (224 each), 1 on rank 0, 4 on rank 1. The exchange
  // takes 50: longer than rank 0's 28, shorter than rank 1's 160.
  CHECK(SpansOf(TwoByTwo(), {{{0, 8, 0, 2}, {1, 1, 0, 1}, {2, 4, 1, 1}}}) ==
        "0 overhead@0 0-10\n"
        "0 local@0 10-38\n"
        "0 wait@0 38-60\n"
        "0 exchange@0 10-60\n"
        "0 sharded@0 60-284\n"
        "0 idle@0 284-394\n"
        "1 overhead@0 0-10\n"
        "1 local@0 10-170\n"
        "1 exchange@0 10-60\n"
        "1 sharded@0 170-394\n"
        "2 idle@-1 0-394\n"
        "3 idle@-1 0-394\n");
}

TEST_CASE("RankTimeline: local attention hides the exchange, by attention",
          "[planner][timeline]") {
  JobSpec spec = TwoByTwo();
  spec.cost.overlap_scope = OverlapScope::kAttention;
  // Linear: 96 + 24 on rank 0, 96 + 96 on rank 1; sharded attention 128.
  CHECK(SpansOf(spec, {{{0, 8, 0, 2}, {1, 1, 0, 1}, {2, 4, 1, 1}}}) ==
        "0 overhead@0 0-10\n"
        "0 linear@0 10-130\n"
        "0 local@0 130-134\n"
        "0 wait@0 134-180\n"
        "0 exchange@0 130-180\n"
        "0 sharded@0 180-308\n"
        "0 idle@0 308-394\n"
        "1 overhead@0 0-10\n"
        "1 linear@0 10-202\n"
        "1 local@0 202-266\n"
        "1 exchange@0 202-252\n"
        "1 sharded@0 266-394\n"
        "2 idle@-1 0-394\n"
        "3 idle@-1 0-394\n");
}

TEST_CASE("RankTimeline: a block across DP ranks waits for all of them",
          "[planner][timeline]") {
  JobSpec spec = TwoByTwo();
  spec.parallelism.cp_size = 1;
  spec.cost.intra_node = {};
  // Rank 1 is ready at 38 and waits for rank 0 until 170; a share of 8 takes
  // 224. Then rank 1 goes on alone.
  CHECK(
      SpansOf(spec,
              {{{0, 4, 0, 1}, {1, 1, 1, 1}}, {{2, 8, 0, 2}}, {{3, 1, 1, 1}}}) ==
      "0 overhead@0 0-10\n"
      "0 local@0 10-170\n"
      "1 overhead@0 0-10\n"
      "1 local@0 10-38\n"
      "0 overhead@1 170-180\n"
      "0 sharded@1 180-404\n"
      "1 idle@1 38-170\n"
      "1 overhead@1 170-180\n"
      "1 sharded@1 180-404\n"
      "1 overhead@2 404-414\n"
      "1 local@2 414-442\n"
      "0 idle@-1 404-442\n");
}

TEST_CASE("RankTimeline: DP ranks without work pay overhead if uniform",
          "[planner][timeline]") {
  JobSpec spec = TwoByTwo();
  spec.parallelism.cp_size = 1;
  spec.parallelism.uniform_micro_batch_count = true;
  CHECK(SpansOf(spec, {{{0, 1, 0, 1}}, {}}) ==
        "0 overhead@0 0-10\n"
        "0 local@0 10-38\n"
        "1 overhead@0 0-10\n"
        "0 overhead@1 38-48\n"
        "1 overhead@1 10-20\n"
        "1 idle@-1 20-48\n");
}

// What the contract gives one rank in one micro-batch.
struct Expected {
  double linear = 0;
  double local = 0;
  double sharded = 0;
  double exchange = 0;
};

Expected Expect(const Job& job, const CostModel& cost,
                const Placements& placements, int32_t rank) {
  RankLoad load;
  std::map<Block, int64_t> blocks;
  for (const SequencePlacement& p : placements) {
    if (rank < p.first_rank || rank >= p.first_rank + p.degree) continue;
    const CompSeconds comp = cost.Comp(p.token_count, p.degree);
    CompSeconds& part = p.degree == 1 ? load.local : load.sharded;
    part.linear += comp.linear;
    part.attention += comp.attention;
    if (p.degree > 1) blocks[p.block()] += p.token_count;
  }
  Expected expected;
  for (const auto& [block, tokens] : blocks) {
    expected.exchange += cost.Exchange(block, tokens);
  }
  if (job.cost().overlap_scope == OverlapScope::kLayer) {
    expected.local = load.local.total();
    expected.sharded = load.sharded.total();
  } else {
    expected.linear = load.local.linear + load.sharded.linear;
    expected.local = load.local.attention;
    expected.sharded = load.sharded.attention;
  }
  return expected;
}

// DP ranks that a block of the micro-batch joins, transitively, by the lowest.
std::vector<int32_t> Components(const Job& job, const Placements& placements) {
  std::vector<int32_t> label(static_cast<size_t>(job.pool().dp_size));
  std::iota(label.begin(), label.end(), 0);
  for (size_t pass = 0; pass < label.size(); ++pass) {
    for (const SequencePlacement& p : placements) {
      const int32_t first = p.first_rank / job.pool().cp_size;
      const int32_t last = (p.first_rank + p.degree - 1) / job.pool().cp_size;
      int32_t lowest = label[static_cast<size_t>(first)];
      for (int32_t d = first; d <= last; ++d) {
        lowest = std::min(lowest, label[static_cast<size_t>(d)]);
      }
      for (int32_t d = first; d <= last; ++d) {
        label[static_cast<size_t>(d)] = lowest;
      }
    }
  }
  return label;
}

// Spans by (micro-batch, rank, activity).
using Key = std::tuple<int32_t, int32_t, RankActivity>;

std::map<Key, RankSpan> ByKey(const std::vector<RankSpan>& spans) {
  std::map<Key, RankSpan> by_key;
  for (const RankSpan& s : spans) {
    // A rank may idle twice in a micro-batch: before it and at its end.
    if (s.activity == RankActivity::kIdle) continue;
    REQUIRE(by_key.emplace(Key{s.micro_batch, s.rank, s.activity}, s).second);
  }
  return by_key;
}

void CheckTiles(const Job& job, const Plan& plan,
                const std::vector<RankSpan>& spans) {
  std::vector<double> at(static_cast<size_t>(job.pool().ranks()), 0.0);
  std::vector<double> sum(at.size(), 0.0);
  for (const RankSpan& s : spans) {
    REQUIRE(s.end > s.start);
    if (s.activity == RankActivity::kExchange) continue;
    const auto r = static_cast<size_t>(s.rank);
    REQUIRE(s.start == at[r]);
    at[r] = s.end;
    sum[r] += s.seconds();
  }
  const double predicted = plan.summary.predicted_seconds;
  for (size_t r = 0; r < at.size(); ++r) {
    REQUIRE(at[r] == predicted);
    REQUIRE(sum[r] == Approx(predicted).epsilon(1e-12).margin(0));
  }
}

TEST_CASE("RankTimeline: random plans are the objective, rank by rank",
          "[planner][timeline]") {
  CAPTURE(Catch::rngSeed());
  Random random(Catch::rngSeed());
  std::set<RankActivity> seen;
  int joined = 0;
  for (int run = 0; run < 600; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const CostModel cost(job);
    const std::vector<int64_t> lengths =
        testing::RandomLengths(random, job, 60);
    const Plan plan = MustPlan(
        job, lengths,
        random.Pick({Policy::kSkrull, Policy::kOptimized, Policy::kOptimized,
                     Policy::kStaticCp, Policy::kPackedStaticCp}));
    CAPTURE(run, testing::ToText(lengths), testing::ToText(spec));
    const std::vector<RankSpan> spans = StepSpans(job, plan);
    CheckTiles(job, plan, spans);
    for (const RankSpan& s : spans) seen.insert(s.activity);

    const auto by_key = ByKey(spans);
    const double scale = plan.summary.predicted_seconds * 1e-12;
    for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
      const Placements& placements = plan.micro_batches[i].placements;
      const auto micro_batch = static_cast<int32_t>(i);
      const std::vector<int32_t> component = Components(job, placements);
      std::map<int32_t, std::set<double>> starts;  // of each component
      for (int32_t rank = 0; rank < job.pool().ranks(); ++rank) {
        const auto seconds = [&](RankActivity activity) {
          const auto found = by_key.find({micro_batch, rank, activity});
          return found == by_key.end() ? 0 : found->second.seconds();
        };
        const Expected expected = Expect(job, cost, placements, rank);
        const auto near = [&](double value) {
          return Approx(value).epsilon(1e-9).margin(scale);
        };
        REQUIRE(seconds(RankActivity::kLinear) == near(expected.linear));
        REQUIRE(seconds(RankActivity::kLocal) == near(expected.local));
        REQUIRE(seconds(RankActivity::kSharded) == near(expected.sharded));
        REQUIRE(seconds(RankActivity::kExchange) == near(expected.exchange));
        REQUIRE(seconds(RankActivity::kWait) ==
                near(std::max(0.0, expected.exchange - expected.local)));
        const auto overhead =
            by_key.find({micro_batch, rank, RankActivity::kOverhead});
        if (overhead != by_key.end()) {
          REQUIRE(overhead->second.seconds() ==
                  near(spec.cost.seconds_per_micro_batch));
          starts[component[static_cast<size_t>(rank / job.pool().cp_size)]]
              .insert(overhead->second.start);
        }
        const auto exchange =
            by_key.find({micro_batch, rank, RankActivity::kExchange});
        const auto sharded =
            by_key.find({micro_batch, rank, RankActivity::kSharded});
        if (exchange == by_key.end()) continue;
        // It ends before the first share, and begins where local work does.
        if (sharded != by_key.end()) {
          REQUIRE(exchange->second.end <= sharded->second.start);
        }
        const auto local =
            by_key.find({micro_batch, rank, RankActivity::kLocal});
        if (local != by_key.end()) {
          REQUIRE(exchange->second.start == local->second.start);
        }
      }
      for (const auto& [label, times] : starts) REQUIRE(times.size() == 1);
      for (size_t d = 1; d < component.size(); ++d) {
        joined += component[d] != static_cast<int32_t>(d);
      }
    }
  }
  // The runs above must have covered what they are there to cover.
  CHECK(seen.size() == 7);
  CHECK(joined > 0);
}

}  // namespace
}  // namespace skrull
