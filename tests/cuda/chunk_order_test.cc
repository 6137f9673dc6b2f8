// Which chunk plans can be executed, and which calls come next.
#include "skrull/cuda/chunk_order.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "skrull/cuda/chunk_store.h"
#include "skrull/tests/cuda/chunk_pool.h"

namespace skrull::exec::testing {
namespace {

// Chunks 0, 1, 2 are sequence 0; 3 is sequences 1 and 2; 4 and 5 are sequence
// 3. Two are retained.
RankChunkPlan SmallPlan() {
  TestChunks chunks(1, 2, 2);
  chunks.AddSplit(0, {5, 4, 3});
  chunks.AddWhole(0, {2, 3});
  chunks.AddSplit(0, {6, 1});
  return *chunks.ForRank(0).chunk_plan;
}

std::string GroupError(const RankChunkPlan& plan) {
  return GroupChunks(plan.chunks).status().message();
}

std::string OrderError(const RankChunkPlan& plan) {
  const Result<ChunkGroups> groups = GroupChunks(plan.chunks);
  REQUIRE(groups.ok());
  return ResolveOperations(plan, *groups).status().message();
}

constexpr auto kF = ChunkPass::kForward;
constexpr auto kD = ChunkPass::kForwardDiscard;
constexpr auto kR = ChunkPass::kRecompute;
constexpr auto kB = ChunkPass::kBackward;

}  // namespace

TEST_CASE("Chunks: dependent ones form a group", "[chunks][order]") {
  const Result<ChunkGroups> groups = GroupChunks(SmallPlan().chunks);
  REQUIRE(groups.ok());
  CHECK(groups->groups ==
        std::vector<ChunkGroup>{{{0, 1, 2}, 12}, {{3}, 5}, {{4, 5}, 7}});
  CHECK(groups->group_of == std::vector<int32_t>{0, 0, 0, 1, 2, 2});
  CHECK(groups->begin_of == std::vector<int64_t>{0, 5, 9, 0, 0, 6});
}

TEST_CASE("Chunks: a plan whose chunks do not fit together is refused",
          "[chunks][order]") {
  RankChunkPlan plan = SmallPlan();
  CHECK(GroupError(plan).empty());
  const auto error = [&] { return GroupError(plan); };
  SECTION("order") {
    std::swap(plan.chunks[3], plan.chunks[4]);
    CHECK(error() == "chunk 3 is listed behind chunk 4");
  }
  SECTION("twice") {
    plan.chunks[4].chunk = 3;
    CHECK(error() == "chunk 3 is listed behind chunk 3");
  }
  SECTION("tokens") {
    plan.chunks[1].token_count = 0;
    CHECK(error() == "chunk 1: token_count is 0");
    plan.chunks[1].token_count = int64_t{1} << 31;
    CHECK(error() == "chunk 1: token_count is 2147483648");
  }
  SECTION("pieces of two sequences") {
    plan.chunks[1].segments.push_back(plan.chunks[3].segments[0]);
    CHECK(error() == "chunk 1 is one of several but has 2 segments");
  }
  SECTION("place") {
    plan.chunks[1].group_index = 2;
    CHECK(error() ==
          "chunk 1 is chunk 2 of 3, where chunk 1 of 3 of its sequence is "
          "next");
  }
  SECTION("number") {
    plan.chunks[1].group_size = 4;
    CHECK_THAT(error(), Catch::StartsWith("chunk 1 is chunk 1 of 4"));
  }
  SECTION("length of the sequence") {
    plan.chunks[1].segments[0].token_count = 13;
    CHECK_THAT(error(), Catch::StartsWith("chunk 1 is chunk 1 of 3"));
  }
  SECTION("a chunk is missing") {
    plan.chunks.pop_back();
    CHECK(error() == "sequence 3 has 1 of 2 chunks, with 6 of 7 tokens");
  }
  SECTION("tokens are missing") {
    plan.chunks[5].token_count = 2;
    CHECK(error() == "sequence 3 has 2 of 2 chunks, with 8 of 7 tokens");
  }
}

TEST_CASE(
    "Chunks: state-aware schedules are accepted, and nothing that lacks "
    "keys, activations or gradients",
    "[chunks][order]") {
  RankChunkPlan plan = SmallPlan();
  REQUIRE(plan.operations == std::vector<ChunkOperation>{{kD, 0},
                                                         {kF, 1},
                                                         {kF, 2},
                                                         {kB, 2},
                                                         {kB, 1},
                                                         {kR, 0},
                                                         {kB, 0},
                                                         {kF, 3},
                                                         {kB, 3},
                                                         {kF, 4},
                                                         {kF, 5},
                                                         {kB, 5},
                                                         {kB, 4}});
  CHECK(OrderError(plan).empty());
  const auto error = [&] { return OrderError(plan); };
  SECTION("no chunk may be retained") {
    plan.retained_chunks = 0;
    CHECK(error() == "retained_chunks is 0");
  }
  SECTION("more are retained") {
    plan.retained_chunks = 1;
    CHECK(error() ==
          "operation 2 (forward of chunk 2): its sequence keeps the "
          "activations of 1 chunks already");
  }
  SECTION("no such chunk") {
    plan.operations[7].chunk = 6;
    CHECK(error() ==
          "operation 7 (forward of chunk 6): the rank has no such chunk");
  }
  SECTION("no such pass") {
    plan.operations[7].pass = static_cast<ChunkPass>(9);
    CHECK(error() ==
          "operation 7 (unknown pass of chunk 3): there is no such pass");
  }
  SECTION("before its predecessor's keys") {
    std::swap(plan.operations[1], plan.operations[2]);
    CHECK(error() ==
          "operation 1 (forward of chunk 2): chunk 1 has not gone forward");
  }
  SECTION("before its successor's gradients") {
    std::swap(plan.operations[3], plan.operations[4]);
    CHECK(error() ==
          "operation 3 (backward of chunk 1): chunk 2 has not gone backward");
  }
  SECTION("forward again") {
    plan.operations[5].pass = kF;
    CHECK(error() ==
          "operation 5 (forward of chunk 0): it went forward before");
  }
  SECTION("recomputed for nothing") {
    plan.operations[3].pass = kR;
    CHECK(error() ==
          "operation 3 (recomputation of chunk 2): it has not discarded its "
          "activations");
  }
  SECTION("backward without activations") {
    plan.operations.erase(plan.operations.begin() + 5);
    CHECK(error() ==
          "operation 5 (backward of chunk 0): its activations are not kept");
  }
  SECTION("backward again") {
    plan.operations[4].chunk = 2;
    CHECK(error() ==
          "operation 4 (backward of chunk 2): its activations are not kept");
  }
  SECTION("never backward") {
    plan.operations.pop_back();
    CHECK(error() == "chunk 4 never goes backward in the plan's operations");
  }
}

// All lists of a forward, a recomputation where needed and a backward of two
// chunks: those that are accepted, by hand.
TEST_CASE("Chunks: every order of two chunks", "[chunks][order]") {
  for (const int64_t retained : {1, 2}) {
    TestChunks chunks(1, 1, retained);
    chunks.AddSplit(0, {2, 2});
    RankChunkPlan plan = *chunks.ForRank(0).chunk_plan;
    const ChunkGroups groups = *GroupChunks(plan.chunks);
    std::vector<std::vector<ChunkOperation>> accepted;
    for (const bool discard0 : {false, true}) {
      for (const bool discard1 : {false, true}) {
        std::vector<int> order;
        const std::vector<ChunkOperation> all = {
            {discard0 ? kD : kF, 0}, {kR, 0}, {kB, 0},
            {discard1 ? kD : kF, 1}, {kR, 1}, {kB, 1}};
        for (int i = 0; i < 6; ++i) {
          if ((i == 1 && !discard0) || (i == 4 && !discard1)) continue;
          order.push_back(i);
        }
        do {
          plan.operations.clear();
          for (const int i : order) {
            plan.operations.push_back(all[static_cast<size_t>(i)]);
          }
          if (ResolveOperations(plan, groups).ok()) {
            accepted.push_back(plan.operations);
          }
        } while (std::ranges::next_permutation(order).found);
      }
    }
    // Keeping both, in the only order; discarding the first, or the second, or
    // both, which are recomputed as late as possible or, with room, earlier.
    std::vector<std::vector<ChunkOperation>> want;
    if (retained == 2) {
      want.push_back({{kF, 0}, {kF, 1}, {kB, 1}, {kB, 0}});
      want.push_back({{kF, 0}, {kD, 1}, {kR, 1}, {kB, 1}, {kB, 0}});
      want.push_back({{kD, 0}, {kR, 0}, {kF, 1}, {kB, 1}, {kB, 0}});
      want.push_back({{kD, 0}, {kF, 1}, {kR, 0}, {kB, 1}, {kB, 0}});
      want.push_back({{kD, 0}, {kD, 1}, {kR, 0}, {kR, 1}, {kB, 1}, {kB, 0}});
      want.push_back({{kD, 0}, {kR, 0}, {kD, 1}, {kR, 1}, {kB, 1}, {kB, 0}});
      want.push_back({{kD, 0}, {kD, 1}, {kR, 1}, {kR, 0}, {kB, 1}, {kB, 0}});
    }
    want.push_back({{kD, 0}, {kF, 1}, {kB, 1}, {kR, 0}, {kB, 0}});
    want.push_back({{kD, 0}, {kD, 1}, {kR, 1}, {kB, 1}, {kR, 0}, {kB, 0}});
    CHECK(accepted.size() == want.size());
    for (const auto& operations : want) {
      CHECK(std::ranges::count(accepted, operations) == 1);
    }
  }
}

TEST_CASE("Chunks: calls follow the operations and their layers",
          "[chunks][order]") {
  const std::vector<ChunkOperation> operations = {{kD, 7}, {kR, 7}, {kB, 7}};
  ChunkProgress progress(2);
  const auto call = [&](int32_t operation, int32_t layer, bool backward) {
    return progress.Advance(operations, operation, layer, backward).message();
  };
  CHECK(call(0, 1, false) ==
        "Forward of operation 0 in layer 1, where operation 0 (forward without "
        "keeping of chunk 7) in layer 0 is next");
  CHECK(call(0, 0, false).empty());
  CHECK_FALSE(call(0, 0, false).empty());
  CHECK_FALSE(call(1, 0, false).empty());
  CHECK(call(0, 1, false).empty());
  CHECK(call(1, 0, false).empty());
  CHECK(call(1, 1, false).empty());
  CHECK(call(2, 0, true) ==
        "Backward of operation 2 in layer 0, where operation 2 (backward of "
        "chunk 7) in layer 1 is next");
  CHECK_FALSE(call(2, 1, false).empty());
  CHECK_FALSE(call(-1, 1, true).empty());
  CHECK(call(2, 1, true).empty());
  CHECK(call(2, 0, true).empty());
  CHECK(call(3, 0, false) == "operation 3 follows the step's last one");
}

TEST_CASE("Chunks: rows of the store are reused, and never shared",
          "[chunks][order]") {
  const std::vector<RowsInUse> uses = {{10, 0, 5}, {4, 1, 2}, {3, 3, 9},
                                       {6, 6, 7},  {7, 8, 9}, {2, 4, 4}};
  CHECK(PlaceRows(uses) == RowPlaces{{0, 10, 10, 0, 0, 13}, 15});
  for (uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    std::vector<RowsInUse> random_uses(random() % 12);
    for (RowsInUse& use : random_uses) {
      use.rows = static_cast<int64_t>(random() % 5);
      use.first_operation = static_cast<int64_t>(random() % 10);
      use.last_operation =
          use.first_operation + static_cast<int64_t>(random() % 5);
    }
    const RowPlaces places = PlaceRows(random_uses);
    int64_t end = 0;
    for (size_t i = 0; i < random_uses.size(); ++i) {
      const RowsInUse& a = random_uses[i];
      const int64_t row = places.first_rows[i];
      REQUIRE(row >= 0);
      end = std::max(end, row + a.rows);
      for (size_t j = 0; j < i; ++j) {
        const RowsInUse& b = random_uses[j];
        const bool together = a.first_operation <= b.last_operation &&
                              b.first_operation <= a.last_operation;
        const bool apart = row + a.rows <= places.first_rows[j] ||
                           places.first_rows[j] + b.rows <= row;
        CHECK((!together || apart || a.rows == 0 || b.rows == 0));
      }
    }
    CHECK(places.rows == end);
  }
  // One after another: the largest.
  CHECK(PlaceRows(std::vector<RowsInUse>{{5, 4, 6}, {9, 0, 3}, {2, 7, 7}}) ==
        RowPlaces{{0, 0, 0}, 9});
}

}  // namespace skrull::exec::testing
