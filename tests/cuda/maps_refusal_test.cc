// Rank plans that BuildMaps refuses, and what it says.
#include <catch2/catch.hpp>
#include <cstdint>
#include <utility>

#include "skrull/cuda/maps.h"
#include "skrull/planner/layout.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {

TEST_CASE("Maps: refuse what is no share of a plan", "[maps]") {
  const TestPlan plan{.ranks = 2,
                      .micro_batches = {{{0, 3, 0, 1}, {1, 5, 0, 2}}}};
  const RankMicroBatch good = plan.ForRank(0).micro_batches[0];
  REQUIRE(BuildMaps(good, 0, 0.5).ok());
  const auto message = [&](const RankMicroBatch& mb, int32_t rank = 0) {
    const Result<MicroBatchMaps> maps = BuildMaps(mb, rank, 0.5);
    CHECK(maps.status().code() == StatusCode::kInvalidArgument);
    return maps.status().message();
  };
  RankMicroBatch bad = good;
  SECTION("another rank's") {
    CHECK_THAT(message(good, 1), Catch::Contains("sequence 0") &&
                                     Catch::Contains("not on rank 1"));
  }
  SECTION("wrong chunk") {
    bad.segments[1].low.end += 1;
    CHECK_THAT(message(bad), Catch::Contains("sequence 1 (5 tokens on ranks "
                                             "[0, 2)) has [0, 2) and [3, 5)"));
  }
  SECTION("wrong count") {
    bad.row_count = 7;
    CHECK_THAT(message(bad),
               Catch::Contains("have 6 rows") && Catch::Contains("is 7"));
  }
  SECTION("no degree") {
    bad.segments[1].block.degree = 0;
    CHECK_THAT(message(bad), Catch::Contains("is no placement"));
  }
  SECTION("no tokens") {
    bad.segments[0].token_count = 0;
    CHECK_THAT(message(bad), Catch::Contains("is no placement"));
  }
  SECTION("wrong order") {
    std::swap(bad.segments[0], bad.segments[1]);
    CHECK_THAT(message(bad), Catch::Contains("follows a sharded"));
  }
  SECTION("too many rows") {
    RankSegment huge{.sequence = 0,
                     .token_count = INT32_MAX,
                     .block = {0, 1},
                     .low = {0, INT32_MAX},
                     .high = {INT32_MAX, INT32_MAX}};
    bad.segments = {huge, huge};
    bad.row_count = 2 * int64_t{INT32_MAX};
    CHECK_THAT(message(bad), Catch::Contains("2^31 - 1"));
  }
  SECTION("too many gathered tokens") {
    bad.segments.clear();
    bad.row_count = 0;
    int32_t rotation = 0;
    for (int32_t i = 0; i < 2; ++i) {
      const ZigzagShard shard = Shard(2000000000, 4096, rotation, 0);
      bad.segments.push_back({.sequence = i,
                              .token_count = 2000000000,
                              .block = {0, 4096},
                              .low = shard.low,
                              .high = shard.high});
      bad.row_count += shard.rows();
      rotation = NextRotation(2000000000, 4096, rotation);
    }
    CHECK_THAT(message(bad), Catch::Contains("2^31 - 1"));
  }
}

}  // namespace skrull::exec::testing
