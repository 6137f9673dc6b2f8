// The index math of the attention kernels against lists and loops.
#include "skrull/cuda/attention/cuda/tile_schedule.cuh"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "skrull/cuda/attention/cuda/block_tile.cuh"
#include "skrull/cuda/attention/cuda/segment_mask.cuh"

namespace skrull::exec::testing {
namespace {

using flash::BlockTile;
using flash::FindBlockTile;
using flash::FindTile;
using flash::MakeTileSchedule;
using flash::SegmentMask;
using flash::SegmentTile;
using flash::SharedParams;
using flash::TileSchedule;

std::vector<int32_t> Sums(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> cu = {0};
  for (const int32_t length : lengths) cu.push_back(cu.back() + length);
  return cu;
}

std::vector<int32_t> RandomLengths(std::mt19937_64* random, int32_t count) {
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < count; ++i) {
    // Long and short ones mixed, multiples of tiles, and none at all.
    const uint64_t most = (*random)() % 8 == 0 ? 3000 : 100;
    auto length = static_cast<int32_t>((*random)() % most);
    if ((*random)() % 4 == 0) length = length / 64 * 64;
    lengths.push_back(length);
  }
  return lengths;
}

}  // namespace

TEST_CASE("tile schedule: each tile of each segment has one slot",
          "[flash][schedule]") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    INFO("seed " << seed);
    const int32_t counts[] = {1, 2, 7, 255, 256, 257, 700};
    const int32_t count = counts[random() % 7];
    const int32_t rows = random() % 2 == 0 ? 64 : 128;
    const auto lengths = RandomLengths(&random, count);
    const auto cu = Sums(lengths);
    const auto other = Sums(RandomLengths(&random, count));
    const TileSchedule schedule =
        MakeTileSchedule(cu.data(), other.data(), count, rows);
    std::multiset<std::pair<int32_t, int32_t>> got;
    std::multiset<std::pair<int32_t, int32_t>> want;
    for (int32_t s = 0; s < count; ++s) {
      for (int32_t t = 0; int64_t{t} * rows < lengths[size_t(s)]; ++t) {
        want.insert({s, t});
      }
    }
    const bool last_first = random() % 2 == 0;
    for (int32_t slot = 0; slot < schedule.slots; ++slot) {
      const SegmentTile tile = FindTile(schedule, cu.data(), slot, last_first);
      if (tile.segment >= 0) got.insert({tile.segment, tile.tile});
    }
    CHECK(got == want);
    // No more than one slot a segment is in vain.
    CHECK(schedule.slots <= static_cast<int64_t>(want.size()) + count);
    if (count <= flash::kMaxSortedSegments) {
      CHECK(schedule.slots == static_cast<int64_t>(want.size()));
    }
  }
}

TEST_CASE("tile schedule: heavy tiles come first", "[flash][schedule]") {
  const auto cu = Sums({100, 300, 5, 300, 64});
  const auto other = Sums({100, 300, 900, 500, 64});
  const TileSchedule schedule =
      MakeTileSchedule(cu.data(), other.data(), 5, 128);
  const std::vector<std::pair<int32_t, int32_t>> want = {
      {2, 0}, {3, 2}, {3, 1}, {3, 0}, {1, 2}, {1, 1}, {1, 0}, {0, 0}, {4, 0}};
  REQUIRE(schedule.slots == static_cast<int64_t>(want.size()));
  for (size_t i = 0; i < want.size(); ++i) {
    const SegmentTile tile =
        FindTile(schedule, cu.data(), static_cast<int32_t>(i), true);
    CHECK(std::pair(tile.segment, tile.tile) == want[i]);
  }
}

TEST_CASE("tile schedule: as many rows as int32 counts", "[flash][schedule]") {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max() - 255;
  const std::vector<int32_t> one = {0, kMost};
  std::vector<int32_t> many = {0};
  for (int32_t s = 1; s < 400; ++s) many.push_back(s);
  many.push_back(kMost);
  for (const auto& cu : {one, many}) {
    const auto count = static_cast<int32_t>(cu.size()) - 1;
    const TileSchedule schedule =
        MakeTileSchedule(cu.data(), cu.data(), count, 64);
    REQUIRE(schedule.slots <= std::numeric_limits<int32_t>::max());
    SegmentTile last;
    for (int64_t slot = schedule.slots; slot-- > 0 && last.segment < 0;) {
      last = FindTile(schedule, cu.data(), static_cast<int32_t>(slot), false);
    }
    CHECK(last.segment == count - 1);
    CHECK(last.tile == (kMost - cu[size_t(count) - 1] - 1) / 64);
  }
}

TEST_CASE("tile schedule: blocks find head, rows and mask",
          "[flash][schedule]") {
  const auto cu_q = Sums({70, 10});
  const auto cu_kv = Sums({70, 200});
  const SharedParams params{.cu_q = cu_q.data(),
                            .cu_kv = cu_kv.data(),
                            .q_heads = 6,
                            .group = 2,
                            .causal = true};
  const TileSchedule keys = MakeTileSchedule(cu_kv.data(), cu_q.data(), 2, 64);
  REQUIRE(keys.slots == 2 + 4);
  // Slot 1, head 2 of 3 key heads: the second tile of the first segment.
  const BlockTile tile = FindBlockTile(params, keys, 5, 3, /*of_keys=*/true);
  CHECK(!tile.empty);
  CHECK(tile.head == 2);
  CHECK(tile.first == 64);
  CHECK(tile.q_row == 0);
  CHECK(tile.kv_row == 0);
  CHECK(tile.mask.queries == 70);
  CHECK(tile.mask.keys == 70);
  const TileSchedule queries =
      MakeTileSchedule(cu_q.data(), cu_kv.data(), 2, 64);
  // The second segment's tile walks more keys.
  const BlockTile first = FindBlockTile(params, queries, 4, 6, false);
  CHECK(first.head == 4);
  CHECK(first.q_row == 70);
  CHECK(first.kv_row == 70);
  CHECK(first.mask.keys == 200);
}

TEST_CASE("tile schedule: offsets of 64 bits", "[flash][schedule]") {
  // 262,144 rows of 64 heads of 128 elements, head by head and row by row.
  std::vector<uint16_t> first(1);
  for (const flash::HalfRows rows :
       {flash::HalfRows{first.data(), 64 * 128, 128},
        flash::HalfRows{first.data(), 128, int64_t{262'144} * 128}}) {
    const auto distance =
        reinterpret_cast<uintptr_t>(flash::At(rows, 262'143, 63)) -
        reinterpret_cast<uintptr_t>(first.data());
    CHECK(distance == 2 * (int64_t{262'144} * 64 * 128 - 128));
  }
}

TEST_CASE("segment mask: as its definition reads", "[flash][schedule]") {
  for (const int32_t queries : {1, 2, 5, 9}) {
    for (const int32_t keys : {0, 1, 4, 9, 14}) {
      for (const bool causal : {true, false}) {
        const SegmentMask mask{queries, keys, causal};
        const auto sees = [&](int32_t i, int32_t j) {
          return !causal || j <= i + keys - queries;
        };
        for (int32_t i = 0; i < queries; ++i) {
          int32_t seen = 0;
          for (int32_t j = 0; j < keys; ++j) seen += sees(i, j) ? 1 : 0;
          CHECK(mask.KeysOf(i) == seen);
          for (const int32_t rows : {1, 3, 16}) {
            int32_t end = 0;
            bool all = true;
            for (int32_t r = i; r < std::min(i + rows, queries); ++r) {
              end = std::max(end, mask.KeysOf(r));
            }
            CHECK(mask.KeysOfTile(i, rows) == end);
            for (int32_t j = 0; j < keys; ++j) {
              all = true;
              for (int32_t r = i; r < queries; ++r) {
                for (int32_t c = j; c < j + rows; ++c) {
                  all &= c < keys && sees(r, c);
                }
              }
              CHECK(mask.Hides(i, j, rows) == !all);
            }
          }
        }
        for (int32_t j = 0; j < keys; ++j) {
          int32_t first = queries;
          for (int32_t i = queries; i-- > 0;) {
            if (sees(i, j)) first = i;
          }
          CHECK(mask.FirstQueryOf(j) == first);
          for (int32_t i = 0; i < queries; ++i) {
            CHECK((mask.HiddenFrom(j, i) > 0) == !sees(i, j));
            for (int32_t n = 1; n < 4; ++n) {
              CHECK((mask.HiddenFrom(j, i) + n > 0) == !sees(i, j + n));
              CHECK((mask.HiddenFrom(j, i) > n) == !sees(i + n, j));
            }
          }
        }
      }
    }
  }
}

}  // namespace skrull::exec::testing
