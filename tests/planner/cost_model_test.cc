// The objective against numbers worked out by hand.
#include "skrull/planner/cost_model.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "skrull/planner/lower_bound.h"
#include "skrull/tests/planner/naive_checker.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::UnitSpec;

// Seconds of the step when its micro-batches are these.
double StepSeconds(
    const JobSpec& spec,
    const std::vector<std::vector<SequencePlacement>>& micro_batches) {
  const Job job = MakeJob(spec);
  const CostModel cost(job);
  StepClock clock(job, cost);
  for (const auto& placements : micro_batches) clock.Run(placements);
  return clock.seconds();
}

double Bound(const JobSpec& spec, const std::vector<int64_t>& lengths) {
  const Job job = MakeJob(spec);
  return ComputeLowerBound(job, CostModel(job), lengths).seconds;
}

TEST_CASE("CostModel: compute of a share", "[planner][cost]") {
  JobSpec spec = UnitSpec(1, 4, 100);
  {
    const Job job = MakeJob(spec);
    const CompSeconds comp = CostModel(job).Comp(10, 4);
    CHECK(comp.linear == 60);      // 24 * 10 / 4
    CHECK(comp.attention == 100);  // 4 * 100 / 4
    CHECK(comp.total() == 160);
    CHECK(CostModel(job).Work(10) == 640);
  }
  spec.cost.seconds_per_flop = 0.5;
  spec.cost.pass_multiplier = 3;
  {
    const Job job = MakeJob(spec);
    CHECK(CostModel(job).Comp(10, 4).total() == 240);
    CHECK(CostModel(job).Work(10) == 640);  // measured rates do not matter
  }
  spec.cost.efficiency_half_tokens = 5;  // eff(10 / 4) = 1/3, eff(10) = 2/3
  const Job job = MakeJob(spec);
  const CostModel cost(job);
  CHECK(cost.Comp(10, 4).linear == Approx(90));
  CHECK(cost.Comp(10, 4).attention == Approx(450));
  CHECK(cost.Work(10) == Approx(240 + 600));
}

TEST_CASE("CostModel: case 17, costs of very long sequences stay positive",
          "[planner][cost]") {
  JobSpec spec = UnitSpec(1, 1, 1 << 30);
  spec.model.hidden_size = 8192;
  spec.model.layer_count = 80;
  spec.model.attention_head_count = 64;
  const Job job = MakeJob(spec);
  const CostModel cost(job);
  CHECK(cost.Comp(46341, 1).attention == 80.0 * 4 * 8192 * (46341.0 * 46341.0));
  CHECK(2 * cost.Comp(1643000, 1).total() > 9.3e18);  // over int64
  double last = 0;
  for (int64_t s = 1; s < int64_t{1} << 31; s = s * 3 / 2 + 1) {
    const double seconds = cost.Comp(s, 1).total();
    REQUIRE(seconds > last);
    REQUIRE(std::isfinite(seconds));
    last = seconds;
  }
}

TEST_CASE("CostModel: exchange by constants and node tiers",
          "[planner][cost]") {
  JobSpec spec = UnitSpec(2, 4, 100);
  spec.parallelism.block_scope = BlockScope::kPool;
  spec.parallelism.ranks_per_node = 4;
  spec.model.layer_count = 2;
  spec.cost.collectives_per_layer = 3;
  spec.cost.bytes_per_element = 2;  // 2 * h_kv * 2 = 4 bytes a token
  spec.cost.intra_node = {1, 0.5, {}};
  spec.cost.inter_node = LinkCost{10, 2, {}};
  const Job job = MakeJob(spec);
  const CostModel cost(job);
  CHECK(cost.Exchange({0, 1}, 7) == 0);
  CHECK(cost.Exchange({0, 4}, 0) == 0);
  CHECK(cost.Exchange({0, 4}, 7) == 6 * (1 + 28 * 0.5));
  CHECK(cost.Exchange({4, 2}, 7) == 6 * (1 + 28 * 0.5));
  CHECK(cost.Exchange({0, 8}, 7) == 6 * (10 + 28 * 2.0));
  CHECK(cost.MinExchange(1, 7) == 0);
  CHECK(cost.MinExchange(4, 7) == cost.Exchange({0, 4}, 7));
  CHECK(cost.MinExchange(8, 7) == cost.Exchange({0, 8}, 7));

  spec.parallelism.ranks_per_node = 6;  // group 1 now spans two nodes
  const Job odd = MakeJob(spec);
  const CostModel odd_cost(odd);
  CHECK(odd_cost.Exchange({0, 4}, 7) == 6 * (1 + 28 * 0.5));
  CHECK(odd_cost.Exchange({4, 4}, 7) == 6 * (10 + 28 * 2.0));
  CHECK(odd_cost.MinExchange(4, 7) == 6 * (1 + 28 * 0.5));

  spec.parallelism.ranks_per_node = 0;  // one node
  const Job one = MakeJob(spec);
  CHECK(CostModel(one).Exchange({0, 8}, 7) == 6 * (1 + 28 * 0.5));
  spec.parallelism.ranks_per_node = 4;
  spec.cost.inter_node.reset();  // as intra_node
  const Job same = MakeJob(spec);
  CHECK(CostModel(same).Exchange({0, 8}, 7) == 6 * (1 + 28 * 0.5));
}

TEST_CASE("CostModel: a measured table replaces the constants",
          "[planner][cost]") {
  JobSpec spec = UnitSpec(1, 2, 1 << 30);
  spec.cost.bytes_per_element = 0.5;  // 1 byte a token
  // all_gather of the paper's Table 5, bytes and microseconds.
  spec.cost.intra_node = {1e9,
                          1e9,
                          {{2 << 20, 53.29},
                           {4 << 20, 72.52},
                           {8 << 20, 97.86},
                           {16 << 20, 199.3}}};
  const Job job = MakeJob(spec);
  const CostModel cost(job);
  const auto at = [&](int64_t bytes) { return cost.Exchange({0, 2}, bytes); };
  CHECK(at(1) == 53.29);
  CHECK(at(2 << 20) == 53.29);
  CHECK(at(3 << 20) == Approx((53.29 + 72.52) / 2));
  CHECK(at(4 << 20) == Approx(72.52));
  CHECK(at(5 << 20) == Approx(72.52 + (97.86 - 72.52) / 4));
  CHECK(at(16 << 20) == Approx(199.3));
  CHECK(at(32 << 20) == Approx(199.3 + 2 * (199.3 - 97.86)));

  spec.cost.intra_node.table.resize(1);
  const Job flat = MakeJob(spec);
  CHECK(CostModel(flat).Exchange({0, 2}, 1 << 29) == 53.29);

  // A table that dips: no size of 10 or more is cheaper than its lowest point.
  spec.cost.intra_node.table = {{0, 5.0}, {10, 9.0}, {20, 1.0}, {30, 4.0}};
  const Job dip = MakeJob(spec);
  CHECK(CostModel(dip).Exchange({0, 2}, 10) == 9);
  CHECK(CostModel(dip).MinExchange(2, 10) == 1);
  CHECK(CostModel(dip).MinExchange(2, 25) == Approx(2.5));
}

TEST_CASE("CostModel: what exchange hides behind, in both scopes",
          "[planner][cost]") {
  // Rank 0: 1 local, rank 1: 3 local, 4 over both. Linear 24 S, attention
  // 4 S^2: local 24 + 4 and 72 + 36, shares 48 + 32.
  const std::vector<SequencePlacement> placements = {
      {1, 1, 0, 1}, {0, 4, 0, 2}, {2, 3, 1, 1}};
  JobSpec spec = UnitSpec(1, 2, 100);
  spec.cost.seconds_per_micro_batch = 1000;
  const auto seconds = [&](double exchange, OverlapScope scope) {
    spec.cost.intra_node = {exchange, 0, {}};
    spec.cost.overlap_scope = scope;
    return StepSeconds(spec, {placements});
  };
  // Layer: max(exchange, 28 | 108) + 80.
  CHECK(seconds(0, OverlapScope::kLayer) == 1000 + 108 + 80);
  CHECK(seconds(50, OverlapScope::kLayer) == 1000 + 108 + 80);
  CHECK(seconds(500, OverlapScope::kLayer) == 1000 + 500 + 80);
  // Attention: linear 72 | 120, max(exchange, 4 | 36), 32.
  CHECK(seconds(0, OverlapScope::kAttention) == 1000 + 120 + 36 + 32);
  CHECK(seconds(50, OverlapScope::kAttention) == 1000 + 120 + 50 + 32);
}

TEST_CASE("CostModel: a rank pays the exchange of each of its blocks",
          "[planner][cost]") {
  JobSpec spec = UnitSpec(2, 2, 100);
  spec.parallelism.block_scope = BlockScope::kPool;
  spec.cost.intra_node = {1000, 1, {}};
  // Blocks [0,2) with 2 + 4 tokens (one exchange), [0,4) with 8 tokens.
  const std::vector<SequencePlacement> placements = {
      {0, 2, 0, 2}, {1, 8, 0, 4}, {2, 4, 0, 2}};
  // 4 bytes a token; shares 24 + 8, 48 + 64, 48 + 32.
  CHECK(StepSeconds(spec, {placements}) ==
        (1000 + 24) + (1000 + 32) + 32 + 112 + 80);
}

TEST_CASE("CostModel: DP ranks run on their own unless a block joins them",
          "[planner][cost]") {
  JobSpec spec = UnitSpec(4, 1, 100);
  spec.parallelism.block_scope = BlockScope::kPool;
  spec.cost.seconds_per_micro_batch = 1000;
  // Alone, S tokens take 24 S + 4 S^2: 1 -> 28, 2 -> 64, 3 -> 108, 4 -> 160.
  // Eq. 8 of the paper: max over DP ranks of sums.
  CHECK(StepSeconds(spec, {{{0, 4, 0, 1}, {1, 1, 1, 1}},
                           {{2, 1, 0, 1}, {3, 3, 1, 1}}}) == 2000 + 160 + 28);
  const Job job = MakeJob(spec);
  const CostModel cost(job);
  StepClock clock(job, cost);
  // Ready: 1160, 0, 1028, 0.
  const MicroBatchTime first =
      clock.Run(std::vector<SequencePlacement>{{0, 4, 0, 1}, {1, 1, 2, 1}});
  CHECK(first.seconds == 1160);
  CHECK(first.max_rank_tokens == 4);
  // 0 and 1 join from 1160, for 1000 + 64 (4 over two ranks is 80); 2 goes on
  // alone from 1028 for 1108; 3 rests.
  const MicroBatchTime second =
      clock.Run(std::vector<SequencePlacement>{{2, 4, 0, 2}, {3, 3, 2, 1}});
  CHECK(second.seconds == 1108);
  CHECK(clock.seconds() == 1160 + 1080);
  // 1, which waited, must not have been counted as computing.
  // All four join: they start at 2240.
  clock.Run(std::vector<SequencePlacement>{{4, 8, 0, 4}});
  CHECK(clock.seconds() == 2240 + 1000 + (24 * 8 + 4 * 64) / 4.0);
  CHECK(clock.dp_imbalance() == 0);
  // Compute: 160 + 80 + 112, 80 + 112, 28 + 108 + 112, 112.
  CHECK(clock.rank_imbalance() ==
        Approx(352 / ((352 + 192 + 248 + 112) / 4.0) - 1));
}

TEST_CASE("CostModel: joined blocks make one component transitively",
          "[planner][cost]") {
  JobSpec spec = UnitSpec(6, 2, 100);
  spec.parallelism.block_scope = BlockScope::kPool;
  const Job job = MakeJob(spec);
  const CostModel cost(job);
  StepClock clock(job, cost);
  // DP rank 3 is ready last, at 160. Then [4, 8) joins DP ranks 2 and 3 and
  // [0, 8) joins 0 to 3; 4 and 5 are joined on their own and not held up.
  clock.Run(std::vector<SequencePlacement>{{0, 4, 6, 1}});
  clock.Run(
      std::vector<SequencePlacement>{{1, 4, 4, 4}, {2, 8, 0, 8}, {3, 4, 8, 4}});
  // 4 over 4: 40; 8 over 8: 56. Ready: 0-3 at 160 + 96, 4-5 at 40.
  CHECK(clock.seconds() == 256);
  CHECK(clock.dp_imbalance() == Approx(256 / ((4 * 256 + 2 * 40) / 6.0) - 1));
}

TEST_CASE("CostModel: empty slots cost only in uniform jobs",
          "[planner][cost]") {
  JobSpec spec = UnitSpec(2, 1, 100);
  spec.cost.seconds_per_micro_batch = 1000;
  const std::vector<std::vector<SequencePlacement>> steps = {
      {{0, 1, 0, 1}}, {{1, 1, 0, 1}}, {{2, 2, 1, 1}}};
  CHECK(StepSeconds(spec, steps) == 2000 + 56);
  spec.parallelism.uniform_micro_batch_count = true;
  CHECK(StepSeconds(spec, steps) == 3000 + 64);
  const Job job = MakeJob(spec);
  const CostModel cost(job);
  StepClock clock(job, cost);
  CHECK(clock.Run({}).seconds == 1000);
  spec.parallelism.uniform_micro_batch_count = false;
  const Job free_job = MakeJob(spec);
  const CostModel free_cost(free_job);
  StepClock free_clock(free_job, free_cost);
  CHECK(free_clock.Run({}).seconds == 0);
  CHECK(free_clock.seconds() == 0);
  CHECK(free_clock.dp_imbalance() == 0);
  CHECK(free_clock.rank_imbalance() == 0);
}

TEST_CASE("CostModel: lower bounds by hand", "[planner][cost]") {
  JobSpec spec = UnitSpec(1, 2, 10);
  spec.cost.seconds_per_micro_batch = 1000;
  spec.cost.intra_node = {100, 0, {}};
  // 5 tokens: 220 local, 110 + 100 sharded. Work: 220 / 2 ranks.
  CHECK(Bound(spec, {5}) == 1210);
  // 12 tokens fit only sharded: 432 + 100; work (864 + 220) / 2 = 542.
  CHECK(Bound(spec, {12, 5}) == 1542);
  // 25 tokens need two micro-batches of 20.
  CHECK(Bound(spec, {5, 5, 5, 5, 5}) == 550 + 2000);
  // On two DP ranks 3 micro-batches are 1.5 each, or 2 when uniform.
  spec.parallelism.dp_size = 2;
  const std::vector<int64_t> nine(9, 5);
  CHECK(Bound(spec, nine) == 9 * 220 / 4.0 + 1500);
  spec.parallelism.uniform_micro_batch_count = true;
  CHECK(Bound(spec, nine) == 9 * 220 / 4.0 + 2000);
}

TEST_CASE("CostModel: random steps equal the naive contract",
          "[planner][cost]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 3000; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const testing::NaiveContract contract(spec);
    const CostModel cost(job);
    StepClock clock(job, cost);
    std::vector<std::vector<SequencePlacement>> steps;
    for (int64_t mb = random.Between(1, 4); mb > 0; --mb) {
      std::vector<SequencePlacement>& placements = steps.emplace_back();
      for (int64_t n = random.Between(0, 8); n > 0; --n) {
        const Block& b = contract.blocks()[static_cast<size_t>(random.Between(
            0, static_cast<int64_t>(contract.blocks().size()) - 1))];
        placements.push_back({0, static_cast<int32_t>(random.Between(1, 1000)),
                              b.first_rank, b.degree});
      }
      const MicroBatchTime time = clock.Run(placements);
      CAPTURE(run, testing::ToText(spec));
      REQUIRE(time.seconds ==
              Approx(contract.MicroBatchSeconds(placements)).epsilon(1e-12));
      int64_t most = 0;
      for (const auto& rank : contract.Memory(placements)) {
        most = std::max(most, rank.rows);
      }
      REQUIRE(time.max_rank_tokens == most);
    }
    REQUIRE(clock.seconds() ==
            Approx(contract.StepSeconds(steps)).epsilon(1e-12));
  }
}

}  // namespace
}  // namespace skrull
