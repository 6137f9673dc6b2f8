// Maps against the rules row by row, as the layout's page states them.
#include "skrull/cuda/maps.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "skrull/cuda/ring_maps.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

// A token: (sequence, position).
using Token = std::pair<int32_t, int64_t>;
constexpr Token kPad{-1, -1};

std::vector<Token> RankTokens(const std::vector<RankSegment>& segments) {
  std::vector<Token> tokens;
  for (const RankSegment& s : segments) {
    for (const TokenRange& range : {s.low, s.high}) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        tokens.push_back({s.sequence, i});
      }
    }
  }
  return tokens;
}

// Checks begin, and that no dst row comes twice; returns (dst, src) pairs.
std::map<int32_t, int32_t> Expand(const std::vector<CopyRun>& runs) {
  std::map<int32_t, int32_t> rows;
  int32_t begin = 0;
  for (const CopyRun& run : runs) {
    REQUIRE(run.begin == begin);
    REQUIRE(run.count > 0);
    begin += run.count;
    for (int32_t i = 0; i < run.count; ++i) {
      REQUIRE(rows.emplace(run.dst + i, run.src + i).second);
    }
  }
  return rows;
}

std::map<int32_t, int32_t> Inverse(const std::map<int32_t, int32_t>& rows) {
  std::map<int32_t, int32_t> inverse;
  for (const auto& [dst, src] : rows) {
    REQUIRE(inverse.emplace(src, dst).second);
  }
  return inverse;
}

// What all ranks' maps of one micro-batch say, token by token.
struct Pool {
  std::vector<std::vector<RankSegment>> segments;  // [rank]
  std::vector<MicroBatchMaps> maps;
  std::vector<std::vector<RingStep>> ring;
  std::vector<std::vector<Token>> tokens;
};

Pool BuildPool(const TestPlan& plan, size_t micro_batch) {
  Pool pool;
  for (int32_t rank = 0; rank < plan.ranks; ++rank) {
    const RankMicroBatch mb = plan.ForRank(rank).micro_batches[micro_batch];
    const Result<MicroBatchMaps> maps = BuildMaps(mb, rank, 0.5);
    INFO(maps.status().ToString());
    REQUIRE(maps.ok());
    pool.segments.push_back(mb.segments);
    pool.ring.push_back(BuildRingSteps(mb, *maps));
    pool.maps.push_back(*maps);
    pool.tokens.push_back(RankTokens(mb.segments));
  }
  return pool;
}

// The gathered rows of a block, as the ranks' pack maps fill them.
std::vector<Token> GatheredTokens(const Pool& pool, Block block) {
  std::vector<Token> gathered;
  int32_t fewest = INT32_MAX;
  int32_t most = 0;
  int32_t slot_rows = -1;
  for (int32_t r = 0; r < block.degree; ++r) {
    const auto rank = static_cast<size_t>(block.first_rank + r);
    const auto& blocks = pool.maps[rank].blocks;
    const auto found = std::ranges::find(blocks, block, &BlockMaps::block);
    REQUIRE(found != blocks.end());
    REQUIRE(found->rank_in_block == r);
    if (slot_rows < 0) slot_rows = found->slot_rows;
    REQUIRE(found->slot_rows == slot_rows);  // all ranks send as much
    fewest = std::min(fewest, found->rows);
    most = std::max(most, found->rows);
    std::vector<Token> slot(static_cast<size_t>(slot_rows), kPad);
    const auto pack = Expand(found->pack);
    REQUIRE(pack.size() == static_cast<size_t>(found->rows));
    for (const auto& [dst, src] : pack) {
      slot.at(static_cast<size_t>(dst)) =
          pool.tokens[rank].at(static_cast<size_t>(src));
    }
    REQUIRE(Expand(found->deliver) == Inverse(pack));
    gathered.insert(gathered.end(), slot.begin(), slot.end());
  }
  // At most one pad row a rank, and every token once.
  CHECK(most - fewest <= 1);
  CHECK(most == slot_rows);
  std::set<Token> seen;
  for (const Token& token : gathered) {
    if (token != kPad) CHECK(seen.insert(token).second);
  }
  return gathered;
}

// Records that each query of the call saw the keys that its mask allows.
void CoverPairs(const SegmentList& list, const std::vector<Token>& queries,
                const std::vector<Token>& keys,
                std::map<std::tuple<int32_t, int64_t, int64_t>, int>* pairs) {
  REQUIRE(queries.size() == static_cast<size_t>(list.cu_q.back()));
  REQUIRE(keys.size() == static_cast<size_t>(list.cu_kv.back()));
  int32_t max_q = 0;
  int32_t max_kv = 0;
  for (size_t s = 0; s + 1 < list.cu_q.size(); ++s) {
    const int32_t n = list.cu_q[s + 1] - list.cu_q[s];
    const int32_t m = list.cu_kv[s + 1] - list.cu_kv[s];
    max_q = std::max(max_q, n);
    max_kv = std::max(max_kv, m);
    REQUIRE(n >= 1);
    REQUIRE(m >= (list.mask == Mask::kFull ? 1 : n));
    for (int32_t i = 0; i < n; ++i) {
      const int32_t seen = list.mask == Mask::kFull ? m : i + m - n + 1;
      for (int32_t j = 0; j < seen; ++j) {
        const Token q = queries[static_cast<size_t>(list.cu_q[s] + i)];
        const Token k = keys[static_cast<size_t>(list.cu_kv[s] + j)];
        REQUIRE(k != kPad);
        REQUIRE(q.first == k.first);
        ++(*pairs)[{q.first, q.second, k.second}];
      }
    }
  }
  CHECK(list.bounds().max_q == max_q);
  CHECK(list.bounds().max_kv == max_kv);
}

// Every causal pair of every sequence exactly once, and no other.
void CheckCovered(
    const Placements& placements,
    const std::map<std::tuple<int32_t, int64_t, int64_t>, int>& pairs) {
  size_t expected = 0;
  for (const SequencePlacement& p : placements) {
    const auto n = static_cast<size_t>(p.token_count);
    expected += n * (n + 1) / 2;
    for (int64_t i = 0; i < p.token_count; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        const auto found = pairs.find({p.sequence, i, j});
        REQUIRE(found != pairs.end());
        REQUIRE(found->second == 1);
      }
    }
  }
  CHECK(pairs.size() == expected);
}

void CheckAllGather(const Placements& placements, const Pool& pool) {
  std::map<std::tuple<int32_t, int64_t, int64_t>, int> pairs;
  for (size_t rank = 0; rank < pool.maps.size(); ++rank) {
    const MicroBatchMaps& maps = pool.maps[rank];
    const std::vector<Token>& tokens = pool.tokens[rank];
    REQUIRE(static_cast<size_t>(maps.rows) == tokens.size());
    const std::vector<Token> local(tokens.begin(),
                                   tokens.begin() + maps.local_rows);
    const std::vector<Token> sharded(tokens.begin() + maps.local_rows,
                                     tokens.end());
    CoverPairs(maps.local, local, local, &pairs);
    // The halves are the whole.
    SegmentList joined = maps.local_first;
    for (size_t s = 0; s + 1 < maps.local_second.cu_q.size(); ++s) {
      const int32_t n =
          maps.local_second.cu_q[s + 1] - maps.local_second.cu_q[s];
      joined.Add(n, n);
    }
    CHECK(joined == maps.local);

    std::vector<Token> keys(static_cast<size_t>(maps.sharded.cu_kv.back()),
                            kPad);
    std::map<Block, std::vector<Token>> gathered;
    for (const BlockMaps& block : maps.blocks) {
      const std::vector<Token> rows = GatheredTokens(pool, block.block);
      const auto unpack = Expand(block.unpack);
      for (const auto& [dst, src] : unpack) {
        REQUIRE(keys.at(static_cast<size_t>(dst)) == kPad);
        keys[static_cast<size_t>(dst)] = rows.at(static_cast<size_t>(src));
      }
      // The fold is the unpacking turned round: the same rows, each once, the
      // runs tiling the gathered rows in order.
      std::set<std::pair<int32_t, int32_t>> folded;
      int32_t next = 0;
      for (const FoldRun& run : block.fold) {
        REQUIRE(run.dst == next);
        REQUIRE(run.count > 0);
        next += run.count;
        for (int32_t i = 0; i < run.count; ++i) {
          for (const int32_t from : {run.first, run.second}) {
            if (from < 0) continue;
            REQUIRE(folded.insert({from + i, run.dst + i}).second);
          }
        }
      }
      CHECK(next == block.gathered_rows());
      CHECK(folded == std::set<std::pair<int32_t, int32_t>>(unpack.begin(),
                                                            unpack.end()));
    }
    CHECK(std::ranges::is_sorted(maps.blocks, {}, &BlockMaps::block));
    CoverPairs(maps.sharded, sharded, keys, &pairs);
  }
  CheckCovered(placements, pairs);
}

void CheckRing(const Placements& placements, const Pool& pool) {
  std::map<std::tuple<int32_t, int64_t, int64_t>, int> pairs;
  for (size_t rank = 0; rank < pool.maps.size(); ++rank) {
    const MicroBatchMaps& maps = pool.maps[rank];
    const std::vector<Token>& tokens = pool.tokens[rank];
    const std::vector<Token> local(tokens.begin(),
                                   tokens.begin() + maps.local_rows);
    CoverPairs(maps.local, local, local, &pairs);
    int32_t degree = 0;
    for (const BlockMaps& block : maps.blocks) {
      degree = std::max(degree, block.block.degree);
    }
    REQUIRE(pool.ring[rank].size() == static_cast<size_t>(degree));
    for (size_t t = 0; t < pool.ring[rank].size(); ++t) {
      const RingStep& step = pool.ring[rank][t];
      std::vector<Token> queries(static_cast<size_t>(step.segments.cu_q.back()),
                                 kPad);
      const auto rows = Expand(step.queries);
      for (const auto& [dst, src] : rows) {
        queries.at(static_cast<size_t>(dst)) =
            tokens.at(static_cast<size_t>(maps.local_rows + src));
      }
      CHECK(Expand(step.results) == Inverse(rows));
      if (t == 0) {  // all of them, as they lie
        CHECK(queries == std::vector<Token>(tokens.begin() + maps.local_rows,
                                            tokens.end()));
      }
      std::vector<Token> keys(static_cast<size_t>(step.segments.cu_kv.back()),
                              kPad);
      REQUIRE(step.keys.size() == maps.blocks.size());
      for (size_t b = 0; b < maps.blocks.size(); ++b) {
        const BlockMaps& block = maps.blocks[b];
        const auto take = Expand(step.keys[b].take);
        CHECK(Expand(step.keys[b].give) == Inverse(take));
        if (t >= static_cast<size_t>(block.block.degree)) {
          CHECK(take.empty());
          continue;
        }
        const std::vector<Token> gathered = GatheredTokens(pool, block.block);
        const int32_t source = (block.rank_in_block - static_cast<int32_t>(t) +
                                block.block.degree) %
                               block.block.degree;
        for (const auto& [dst, src] : take) {
          REQUIRE(src < block.slot_rows);
          keys.at(static_cast<size_t>(dst)) =
              gathered.at(static_cast<size_t>(source * block.slot_rows + src));
        }
      }
      CoverPairs(step.segments, queries, keys, &pairs);
    }
  }
  CheckCovered(placements, pairs);
}

}  // namespace

TEST_CASE("Maps: every causal pair once, over all ranks", "[maps]") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const TestPlan plan = RandomPlan(&random, 16, 8e3);
    for (size_t mb = 0; mb < plan.micro_batches.size(); ++mb) {
      const Pool pool = BuildPool(plan, mb);
      CheckAllGather(plan.micro_batches[mb], pool);
      CheckRing(plan.micro_batches[mb], pool);
    }
  }
}

// Sequence of 5 tokens over two ranks: rank 0 has 3 rows, chunks [0,1) and
// [3,5); rank 1 has 2, [1,2) and [2,3). Slots of 3 rows.
TEST_CASE("Maps: a sequence of 5 tokens on 2 ranks, by hand", "[maps]") {
  const TestPlan plan{.ranks = 2, .micro_batches = {{{0, 5, 0, 2}}}};
  const MicroBatchMaps zero =
      *BuildMaps(plan.ForRank(0).micro_batches[0], 0, 0.5);
  CHECK(zero.rows == 3);
  CHECK(zero.local_rows == 0);
  CHECK(zero.sharded.cu_q == std::vector<int32_t>{0, 1, 3});
  CHECK(zero.sharded.cu_kv == std::vector<int32_t>{0, 1, 6});
  REQUIRE(zero.blocks.size() == 1);
  CHECK(zero.blocks[0].slot_rows == 3);
  // Gathered: 0 3 4 | 1 2 pad. Keys: 0 | 0 1 2 3 4.
  CHECK(zero.blocks[0].unpack ==
        std::vector<CopyRun>{
            {0, 0, 0, 1}, {1, 1, 0, 1}, {2, 2, 3, 2}, {4, 4, 1, 2}});
  CHECK(zero.blocks[0].fold ==
        std::vector<FoldRun>{
            {0, 1, 1, 0}, {1, 2, 4, -1}, {3, 2, 2, -1}, {5, 1, -1, -1}});
  CHECK(zero.blocks[0].pack == std::vector<CopyRun>{{0, 0, 0, 3}});

  const MicroBatchMaps one =
      *BuildMaps(plan.ForRank(1).micro_batches[0], 1, 0.5);
  CHECK(one.sharded.cu_q == std::vector<int32_t>{0, 1, 2});
  CHECK(one.sharded.cu_kv == std::vector<int32_t>{0, 2, 5});
  // Keys: 0 1 | 0 1 2.
  CHECK(one.blocks[0].fold == std::vector<FoldRun>{{0, 1, 2, 0},
                                                   {1, 2, -1, -1},
                                                   {3, 1, 3, 1},
                                                   {4, 1, 4, -1},
                                                   {5, 1, -1, -1}});
}

TEST_CASE("Maps: a rank without rows takes part in its blocks", "[maps]") {
  const TestPlan plan{.ranks = 4, .micro_batches = {{{0, 2, 0, 4}}}};
  const MicroBatchMaps maps =
      *BuildMaps(plan.ForRank(3).micro_batches[0], 3, 0.5);
  CHECK(maps.rows == 0);
  CHECK(maps.sharded.empty());
  REQUIRE(maps.blocks.size() == 1);
  CHECK(maps.blocks[0].slot_rows == 1);
  CHECK(maps.blocks[0].pack.empty());
  CHECK(maps.blocks[0].unpack.empty());
  CHECK(maps.blocks[0].fold == std::vector<FoldRun>{{0, 4, -1, -1}});
}

TEST_CASE("Maps: local sequences are cut by FLOPs", "[maps]") {
  // Squares 16, 4, 4, 36 and 1, of 61 together.
  const TestPlan plan{.ranks = 2,
                      .micro_batches = {{{0, 4, 0, 1},
                                         {1, 2, 0, 1},
                                         {2, 2, 0, 1},
                                         {3, 6, 0, 1},
                                         {4, 1, 0, 1},
                                         {5, 8, 0, 2}}}};
  const auto first = [&](double share) {
    return BuildMaps(plan.ForRank(0).micro_batches[0], 0, share)
        ->local_first.cu_q;
  };
  CHECK(first(0) == std::vector<int32_t>{0});
  CHECK(first(0.5) == std::vector<int32_t>{0, 4, 6, 8});  // 24 against 60
  CHECK(first(0.9) == std::vector<int32_t>{0, 4, 6, 8, 14});
  CHECK(first(1) == std::vector<int32_t>{0, 4, 6, 8, 14, 15});
  // Without a block there is nothing to hide.
  const TestPlan alone{.ranks = 1,
                       .micro_batches = {{{0, 4, 0, 1}, {1, 4, 0, 1}}}};
  CHECK(BuildMaps(alone.ForRank(0).micro_batches[0], 0, 0.5)
            ->local_second.empty());
}

TEST_CASE("Maps: positions and sequences of the rows", "[maps]") {
  const TestPlan plan{.ranks = 2,
                      .micro_batches = {{{7, 5, 0, 2}, {3, 2, 0, 1}}}};
  const auto segments = plan.ForRank(0).micro_batches[0].segments;
  CHECK(RowSequences(segments) == std::vector<int32_t>{3, 3, 7, 7, 7});
  CHECK(RowPositions(segments) == std::vector<int32_t>{0, 1, 0, 3, 4});
}

}  // namespace skrull::exec::testing
