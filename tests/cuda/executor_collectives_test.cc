// Which collectives the executor issues: the same on all ranks, in one order,
// of the bytes that the contract charges.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "skrull/tests/cuda/rank_pool.h"
#include "skrull/tests/cuda/recording_communicators.h"

namespace skrull::exec::testing {
namespace {

// [rank]: the collectives of one forward and one backward pass.
std::vector<std::vector<Collective>> Record(const TestPlan& plan,
                                            RunOptions options) {
  std::mt19937_64 random(1);
  const auto data = RandomData(&random, options.executor.problem, plan);
  std::vector<std::unique_ptr<RecordingCommunicators>> recorders(
      static_cast<size_t>(plan.ranks));
  options.change_parts = [&](int32_t rank, RankParts* parts) {
    auto& mine = recorders[static_cast<size_t>(rank)];
    mine = std::make_unique<RecordingCommunicators>(parts->communicators);
    parts->communicators = mine.get();
  };
  const RunResult result = RunPlan(plan, data, options);
  for (const Status& status : result.statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  std::vector<std::vector<Collective>> lists;
  for (const auto& recorder : recorders) {
    lists.push_back(recorder->collectives());
  }
  return lists;
}

RunOptions SmallOptions(Exchange exchange) {
  RunOptions options;
  options.executor.problem = {.dtype = DType::kFloat32,
                              .q_heads = 2,
                              .kv_heads = 2,
                              .head_dim = 3,
                              .scale = 0.5};
  options.executor.exchange = exchange;
  return options;
}

// Adds that a comes before b on some rank; false if the order has a circle.
class Order {
 public:
  void Add(const std::vector<int>& list) {
    for (size_t i = 1; i < list.size(); ++i) {
      after_[list[i - 1]].push_back(list[i]);
    }
  }
  bool HasCircle() {
    for (const auto& [node, next] : after_) {
      if (Visit(node)) return true;
    }
    return false;
  }

 private:
  bool Visit(int node) {
    int& state = state_[node];  // 0 new, 1 on the way, 2 done
    if (state != 0) return state == 1;
    state = 1;
    for (const int next : after_[node]) {
      if (Visit(next)) return true;
    }
    state_[node] = 2;
    return false;
  }
  std::map<int, std::vector<int>> after_;
  std::map<int, int> state_;
};

}  // namespace

TEST_CASE("Executor: all ranks issue the same collectives",
          "[executor][collectives]") {
  for (const Exchange exchange : {Exchange::kAllGather, Exchange::kRing}) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      INFO("seed " << seed);
      std::mt19937_64 random(seed);
      const TestPlan plan = RandomPlan(&random, 12, 5e3);
      const auto lists = Record(plan, SmallOptions(exchange));
      // Per block, every member has the same list.
      std::map<Block, std::vector<Collective>> of_block;
      // A collective is the n-th of its block, the same number on all ranks.
      std::map<std::pair<Block, size_t>, int> numbers;
      Order order;
      for (size_t rank = 0; rank < lists.size(); ++rank) {
        std::map<Block, std::vector<Collective>> mine;
        std::vector<int> sequence;
        for (const Collective& c : lists[rank]) {
          const auto key = std::pair(c.block, mine[c.block].size());
          sequence.push_back(
              numbers.emplace(key, static_cast<int>(numbers.size()))
                  .first->second);
          mine[c.block].push_back(c);
        }
        order.Add(sequence);
        for (const auto& [block, list] : mine) {
          const auto [found, first] = of_block.emplace(block, list);
          CHECK(found->second == list);
        }
      }
      for (const auto& [block, list] : of_block) {
        for (int32_t r = 0; r < block.degree; ++r) {
          const auto& all = lists[static_cast<size_t>(block.first_rank + r)];
          CHECK(static_cast<size_t>(std::ranges::count(
                    all, block, &Collective::block)) == list.size());
        }
      }
      CHECK_FALSE(order.HasCircle());
    }
  }
}

TEST_CASE("Executor: collectives of two blocks, by hand",
          "[executor][collectives]") {
  // 10 tokens on [0,4), 3 on [2,4): slots of 3 and 2 rows. Row: K and V of two
  // heads of 3 floats, 48 bytes.
  const TestPlan plan{
      .ranks = 4,
      .micro_batches = {{{0, 3, 2, 2}, {1, 4, 0, 4}, {2, 6, 0, 4}}}};
  using Kind = Collective::Kind;
  const Block four{0, 4};
  const Block two{2, 2};
  const auto lists = Record(plan, SmallOptions(Exchange::kAllGather));
  const std::vector<Collective> both = {
      {Kind::kAllGather, four, 144},     {Kind::kAllGather, two, 96},
      {Kind::kAllGather, four, 144},     {Kind::kAllGather, two, 96},
      {Kind::kReduceScatter, four, 144}, {Kind::kReduceScatter, two, 96}};
  CHECK(lists[3] == both);
  CHECK(lists[2] == both);
  const std::vector<Collective> one = {{Kind::kAllGather, four, 144},
                                       {Kind::kAllGather, four, 144},
                                       {Kind::kReduceScatter, four, 144}};
  CHECK(lists[0] == one);
  CHECK(lists[1] == one);

  const auto ring = Record(plan, SmallOptions(Exchange::kRing));
  std::vector<Collective> shifts;
  for (int i = 0; i < 3 + 3 + 4; ++i) {
    shifts.push_back({Kind::kShift, four, 144});
  }
  CHECK(ring[0] == shifts);
}

// comm of a rank = tokens * kv_bytes_per_token for each of its blocks.
TEST_CASE("Executor: the bytes are the contract's", "[executor][collectives]") {
  for (uint64_t seed = 50; seed < 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    TestPlan plan = RandomPlan(&random, 12, 5e3);
    plan.micro_batches.resize(1);
    RunOptions options = SmallOptions(Exchange::kAllGather);
    options.executor.problem.dtype = DType::kBFloat16;
    options.executor.grad_comm_dtype = DType::kFloat32;
    const auto lists = Record(plan, options);
    const int64_t kv_hidden = int64_t{2} * 3;
    const int64_t kv_bytes_per_token = 2 * kv_hidden * 2;
    std::map<Block, int64_t> tokens;
    for (const SequencePlacement& p : plan.micro_batches[0]) {
      if (p.degree > 1) tokens[p.block()] += p.token_count;
    }
    for (size_t rank = 0; rank < lists.size(); ++rank) {
      size_t own_blocks = 0;
      for (const auto& [block, count] : tokens) {
        const int64_t r = static_cast<int64_t>(rank) - block.first_rank;
        own_blocks += r >= 0 && r < block.degree ? 1 : 0;
      }
      CHECK(lists[rank].size() == 3 * own_blocks);
      for (const Collective& c : lists[rank]) {
        const bool is_sum = c.kind == Collective::Kind::kReduceScatter;
        // float32 sums of bfloat16: twice the bytes.
        const int64_t unit = kv_bytes_per_token * (is_sum ? 2 : 1);
        const int64_t bytes = c.bytes * c.block.degree;
        // Nothing but the pad rows is added.
        CHECK(bytes >= tokens[c.block] * unit);
        CHECK(bytes < (tokens[c.block] + c.block.degree) * unit);
      }
    }
  }
}

}  // namespace skrull::exec::testing
