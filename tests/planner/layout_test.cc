// Blocks and zigzag rows against the contract's words, by naive loops.
#include "skrull/planner/layout.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <vector>

#include "skrull/tests/planner/naive_checker.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::NaiveContract;
using testing::UnitSpec;

// Rows of the rank by the contract's formula.
int64_t NaiveRows(int64_t s, int64_t g, int64_t rot, int64_t r) {
  return s / g + (((r - rot) % g + g) % g < s % g ? 1 : 0);
}

// All 2g chunks in chunk order: low chunks of ranks 0 .. g-1, then high chunks
// of ranks g-1 .. 0, as running sums of their lengths.
std::vector<TokenRange> NaiveChunks(int64_t s, int64_t g, int64_t rot) {
  std::vector<TokenRange> chunks;
  int64_t at = 0;
  for (int64_t c = 0; c < 2 * g; ++c) {
    const int64_t rank = c < g ? c : 2 * g - 1 - c;
    const int64_t rows = NaiveRows(s, g, rot, rank);
    const int64_t size = c < g ? rows / 2 : rows - rows / 2;
    chunks.push_back({at, at + size});
    at += size;
  }
  return chunks;
}

bool ShardsEqualChunks(int64_t s, int32_t g, int32_t rot) {
  const std::vector<TokenRange> chunks = NaiveChunks(s, g, rot);
  if (chunks.front().begin != 0 || chunks.back().end != s) return false;
  for (int32_t r = 0; r < g; ++r) {
    const ZigzagShard shard = Shard(s, g, rot, r);
    if (shard.low != chunks[static_cast<size_t>(r)] ||
        shard.high != chunks[static_cast<size_t>(2 * g - 1 - r)] ||
        shard.rows() != ShardRows(s, g, rot, r) ||
        shard.rows() != NaiveRows(s, g, rot, r)) {
      return false;
    }
  }
  return true;
}

TEST_CASE("Layout: shards equal the naive running sums of chunks",
          "[planner][layout]") {
  for (int32_t g = 1; g <= 9; ++g) {
    for (int32_t rot = 0; rot < g; ++rot) {
      for (int64_t s = 0; s <= 60; ++s) {
        CAPTURE(s, g, rot);
        REQUIRE(ShardsEqualChunks(s, g, rot));
        REQUIRE(NextRotation(s, g, rot) == (rot + s % g) % g);
      }
    }
  }
}

TEST_CASE("Layout: shards of long sequences and wide blocks tile them",
          "[planner][layout]") {
  for (const int64_t s : {(int64_t{1} << 31) - 1, (int64_t{1} << 31) - 1008,
                          int64_t{131071}, int64_t{1643000}}) {
    for (const int32_t g : {2, 3, 12, 1000, 2048}) {
      for (const int32_t rot : {0, 1, g - 1}) {
        CAPTURE(s, g, rot);
        REQUIRE(ShardsEqualChunks(s, g, rot));
      }
    }
  }
}

TEST_CASE("Layout: rows of a block follow from its total alone",
          "[planner][layout]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 2000; ++run) {
    const auto g = static_cast<int32_t>(random.Between(1, 12));
    std::vector<int64_t> rows(static_cast<size_t>(g), 0);
    int64_t total = 0;
    int32_t rot = 0;
    for (int64_t n = random.Between(1, 20); n > 0; --n) {
      const int64_t s = random.Between(1, random.Pick<int64_t>({5, 40, 1000}));
      for (int32_t r = 0; r < g; ++r) {
        rows[static_cast<size_t>(r)] += ShardRows(s, g, rot, r);
      }
      rot = NextRotation(s, g, rot);
      total += s;
      for (int32_t r = 0; r < g; ++r) {
        REQUIRE(rows[static_cast<size_t>(r)] == BlockRows(total, g, r));
      }
      REQUIRE(*std::max_element(rows.begin(), rows.end()) ==
              MaxBlockRows(total, g));
    }
  }
}

TEST_CASE("Layout: case 16, rows of 698 on 4 ranks and of 7 on 2",
          "[planner][layout]") {
  const std::vector<int64_t> expected = {175, 175, 174, 174};
  for (int32_t r = 0; r < 4; ++r) {
    CHECK(ShardRows(698, 4, 0, r) == expected[static_cast<size_t>(r)]);
  }
  CHECK(ShardRows(7, 2, 0, 0) == 4);
  CHECK(ShardRows(7, 2, 0, 1) == 3);
}

TEST_CASE("Layout: allowed blocks are the contract's", "[planner][layout]") {
  for (const BlockScope scope :
       {BlockScope::kGroup, BlockScope::kSubgroup, BlockScope::kPool}) {
    for (int32_t dp = 1; dp <= 9; ++dp) {
      for (int32_t cp = 1; cp <= 13; ++cp) {
        CAPTURE(static_cast<int>(scope), dp, cp);
        const PoolShape pool{dp, cp};
        JobSpec spec = UnitSpec(dp, cp, 10);
        spec.parallelism.block_scope = scope;
        const NaiveContract contract(spec);
        const std::vector<Block>& expected = contract.blocks();
        const std::set<Block> allowed(expected.begin(), expected.end());

        for (int32_t first = -1; first <= pool.ranks(); ++first) {
          for (int32_t degree = -1; degree <= pool.ranks() + 1; ++degree) {
            const Block block{first, degree};
            if (IsAllowedBlock(scope, pool, block) != allowed.contains(block)) {
              FAIL("block " << first << " + " << degree);
            }
          }
        }
        std::set<int32_t> degrees;
        for (const Block& b : allowed) degrees.insert(b.degree);
        REQUIRE(AllowedDegrees(scope, pool) ==
                std::vector<int32_t>(degrees.begin(), degrees.end()));
        for (int32_t degree = 1; degree <= pool.ranks() + 1; ++degree) {
          std::vector<Block> of_degree;
          for (const Block& b : allowed) {
            if (b.degree == degree) of_degree.push_back(b);
          }
          if (AllowedBlocks(scope, pool, degree) != of_degree) {
            FAIL("blocks of degree " << degree);
          }
        }
      }
    }
  }
}

TEST_CASE("Layout: a pool needs at most 2 * ranks communicators",
          "[planner][layout]") {
  for (int32_t dp = 1; dp <= 16; ++dp) {
    for (int32_t cp = 1; cp <= 16; ++cp) {
      size_t blocks = 0;
      for (const int32_t degree : AllowedDegrees(BlockScope::kPool, {dp, cp})) {
        if (degree > 1) {
          blocks += AllowedBlocks(BlockScope::kPool, {dp, cp}, degree).size();
        }
      }
      REQUIRE(blocks <= 2 * static_cast<size_t>(dp * cp));
    }
  }
}

TEST_CASE("Layout: blocks at the edge of int32 are refused, not wrapped",
          "[planner][layout]") {
  constexpr int32_t kMost = INT32_MAX;
  for (const BlockScope scope :
       {BlockScope::kGroup, BlockScope::kSubgroup, BlockScope::kPool}) {
    for (const Block block :
         {Block{kMost, 1}, Block{kMost, kMost}, Block{1, kMost},
          Block{INT32_MIN, 1}, Block{INT32_MIN, INT32_MIN}, Block{0, 0},
          Block{kMost - 1, 8}, Block{0, INT32_MIN}}) {
      CHECK_FALSE(IsAllowedBlock(scope, {4, 8}, block));
    }
  }
}

TEST_CASE("Layout: segments of a rank in row order, by hand",
          "[planner][layout]") {
  // Block [0, 4) of 4 ranks holds 5 then 10 tokens, with local ones between;
  // block [0, 2) keeps a rotation of its own.
  const std::vector<SequencePlacement> placements = {
      {.sequence = 0, .token_count = 5, .first_rank = 0, .degree = 4},
      {.sequence = 1, .token_count = 3, .first_rank = 1, .degree = 1},
      {.sequence = 2, .token_count = 3, .first_rank = 0, .degree = 2},
      {.sequence = 3, .token_count = 10, .first_rank = 0, .degree = 4},
      {.sequence = 4, .token_count = 6, .first_rank = 1, .degree = 1},
      {.sequence = 5, .token_count = 9, .first_rank = 2, .degree = 1},
  };
  // 5 on 4: rows 2,1,1,1, low chunks 1,0,0,0, high 1,1,1,1 (rank 3 first).
  // 10 on 4 from rotation 1: rows 2,3,3,2; low 1,1,1,1; high 1,2,2,1.
  // 3 on 2 from rotation 0: rows 2,1; low 1,0; high 1,1.
  const Block four{0, 4};
  const Block two{0, 2};
  const std::vector<RankSegment> rank1 = {
      {1, 3, {1, 1}, {0, 3}, {3, 3}}, {4, 6, {1, 1}, {0, 6}, {6, 6}},
      {0, 5, four, {1, 1}, {3, 4}},   {2, 3, two, {1, 1}, {1, 2}},
      {3, 10, four, {1, 2}, {7, 9}},
  };
  CHECK(RankSegments(placements, 1) == rank1);
  CHECK(CuSeqlens(rank1) == std::vector<int32_t>{0, 3, 9, 10, 11, 12, 14});

  const std::vector<RankSegment> rank3 = {
      {0, 5, four, {1, 1}, {1, 2}},
      {3, 10, four, {3, 4}, {4, 5}},
  };
  CHECK(RankSegments(placements, 3) == rank3);
  CHECK(CuSeqlens(rank3) == std::vector<int32_t>{0, 1, 2, 3});

  CHECK(RankSegments(placements, 4).empty());
  CHECK(CuSeqlens({}) == std::vector<int32_t>{0});
}

TEST_CASE("Layout: zigzag of 16 tokens on 2 ranks", "[planner][layout]") {
  // Rank 0 holds tokens 0-3 and 12-15, rank 1 holds 4-11.
  CHECK(Shard(16, 2, 0, 0).low == TokenRange{0, 4});
  CHECK(Shard(16, 2, 0, 0).high == TokenRange{12, 16});
  CHECK(Shard(16, 2, 0, 1).low == TokenRange{4, 8});
  CHECK(Shard(16, 2, 0, 1).high == TokenRange{8, 12});
}

TEST_CASE("Layout: case 15, ranks without a token still have the segment",
          "[planner][layout]") {
  const std::vector<SequencePlacement> placements = {
      {.sequence = 0, .token_count = 5, .first_rank = 0, .degree = 8}};
  for (int32_t rank = 0; rank < 8; ++rank) {
    const std::vector<RankSegment> segments = RankSegments(placements, rank);
    REQUIRE(segments.size() == 1);
    CHECK(segments[0].rows() == (rank < 5 ? 1 : 0));
    CHECK(CuSeqlens(segments).size() == (rank < 5 ? 2u : 1u));
  }
}

}  // namespace
}  // namespace skrull
