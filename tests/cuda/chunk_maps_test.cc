// Maps of chunks, by hand.
#include "skrull/cuda/chunk_maps.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "skrull/cuda/chunk_program.h"
#include "skrull/tests/cuda/chunk_pool.h"

namespace skrull::exec::testing {
namespace {

using Runs = std::vector<CopyRun>;
using Folds = std::vector<FoldRun>;
using Cu = std::vector<int32_t>;

// Chunk 0 is tokens [0, 4) of a sequence of 9; chunk 1 the other 5; chunk 2
// sequences of 3 and 2 tokens; chunk 3 one of 5. On two ranks a piece of 5 is
// cut at 1, 2, 3 (rank 0: 1 and 2, rank 1: 1 and 1), one of 4 at 1, 2, 3.
TestChunks FourChunks(int32_t cp_size) {
  TestChunks chunks(1, cp_size, 2);
  chunks.AddSplit(0, {4, 5});
  chunks.AddWhole(0, {3, 2});
  chunks.AddWhole(0, {5});
  return chunks;
}

RankChunk ShareOf(int32_t cp_size, int32_t rank, size_t chunk) {
  return FourChunks(cp_size).ForRank(rank).chunk_plan->chunks[chunk];
}

ChunkMaps MapsOf(int32_t cp_size, int32_t rank, size_t chunk, int64_t begin) {
  const Result<ChunkMaps> maps =
      BuildChunkMaps(ShareOf(cp_size, rank, chunk), rank, begin);
  INFO(maps.status().ToString());
  REQUIRE(maps.ok());
  return *maps;
}

}  // namespace

TEST_CASE("ChunkMaps: the second chunk of a sequence on two ranks",
          "[chunks][maps]") {
  // Tokens 4 .. 8. Rank 0: 4 and 7, 8; rank 1: 5 and 6, and a pad row.
  const ChunkMaps maps = MapsOf(2, 1, 1, 4);
  CHECK(maps.block == Block{0, 2});
  CHECK(maps.rows == 2);
  CHECK(maps.dependent);
  CHECK(maps.store_end == 9);
  CHECK(maps.slot_rows == 3);
  CHECK(maps.pack == Runs{{0, 0, 0, 2}});
  CHECK(maps.deliver == Runs{{0, 0, 0, 2}});
  CHECK(maps.store == Runs{{0, 4, 0, 1}, {1, 7, 1, 2}, {3, 5, 3, 2}});
  CHECK(maps.keys == KeySource::kStore);
  CHECK(maps.copies.empty());
  REQUIRE(maps.calls.size() == 2);
  CHECK(maps.calls[0].segments.cu_q == Cu{0, 1});
  CHECK(maps.calls[0].segments.cu_kv == Cu{0, 6});  // tokens 0 .. 5
  CHECK(maps.calls[0].first_query == 0);
  CHECK(maps.calls[0].first_gradient == 0);
  CHECK(maps.calls[0].add == Runs{{0, 0, 0, 6}});
  CHECK(maps.calls[1].segments.cu_kv == Cu{0, 7});
  CHECK(maps.calls[1].first_query == 1);
  CHECK(maps.calls[1].first_gradient == 0);
  CHECK(maps.calls[1].add == Runs{{0, 0, 0, 7}});
  CHECK(maps.gradient_rows == 7);
  CHECK(maps.fold ==
        Folds{{0, 1, 4, -1}, {1, 2, 7, -1}, {3, 2, 5, -1}, {5, 1, -1, -1}});
  // What all ranks come to alike.
  const ChunkMaps other = MapsOf(2, 0, 1, 4);
  CHECK(other.store == maps.store);
  CHECK(other.fold == maps.fold);
  CHECK(other.slot_rows == maps.slot_rows);
  CHECK(other.rows == 3);
}

TEST_CASE("ChunkMaps: whole sequences on two ranks", "[chunks][maps]") {
  // Rank 0 holds tokens 0 and 2 of 3, and 1 of 2; rank 1 holds 1, and 0.
  const RankChunk share = ShareOf(2, 0, 2);
  const ChunkMaps maps = MapsOf(2, 0, 2, 0);
  CHECK_FALSE(maps.dependent);
  CHECK(maps.store_end == 5);
  CHECK(maps.slot_rows == 3);
  CHECK(maps.rows == 3);
  CHECK(share.segments[0].low == TokenRange{0, 1});
  CHECK(share.segments[0].high == TokenRange{2, 3});
  CHECK(share.segments[1].low == TokenRange{0, 0});
  CHECK(share.segments[1].high == TokenRange{1, 2});
  CHECK(maps.keys == KeySource::kCopies);
  // Prefixes of 1, 3 and 2 tokens; the last two lie as in the store.
  CHECK(maps.copies == Runs{{0, 0, 0, 1}, {1, 1, 0, 5}});
  CHECK(maps.copied_rows() == 6);
  CHECK(maps.store == Runs{{0, 0, 0, 1},
                           {1, 2, 1, 1},
                           {2, 4, 2, 1},
                           {3, 1, 3, 1},
                           {4, 3, 4, 1}});
  REQUIRE(maps.calls.size() == 1);
  CHECK(maps.calls[0].segments.cu_q == Cu{0, 1, 2, 3});
  CHECK(maps.calls[0].segments.cu_kv == Cu{0, 1, 4, 6});
  CHECK(maps.calls[0].add.empty());
  CHECK(maps.gradient_rows == 6);
  // Gathered: tokens 0, 2 and 1' of rank 0; 1, 0' and a pad row of rank 1.
  CHECK(maps.fold == Folds{{0, 1, 1, 0},
                           {1, 1, 3, -1},
                           {2, 1, 5, -1},
                           {3, 1, 2, -1},
                           {4, 1, 4, -1},
                           {5, 1, -1, -1}});
}

TEST_CASE("ChunkMaps: an only sequence's keys are the store's",
          "[chunks][maps]") {
  const ChunkMaps maps = MapsOf(2, 0, 3, 0);
  CHECK_FALSE(maps.dependent);
  CHECK(maps.keys == KeySource::kStore);
  REQUIRE(maps.calls.size() == 2);
  CHECK(maps.calls[0].segments.cu_kv == Cu{0, 1});
  CHECK(maps.calls[0].first_gradient == 0);
  CHECK(maps.calls[1].segments.cu_kv == Cu{0, 5});
  CHECK(maps.calls[1].segments.cu_q == Cu{0, 2});
  CHECK(maps.calls[1].first_gradient == 1);
  CHECK(maps.calls[1].add.empty());
  CHECK(maps.gradient_rows == 6);
  CHECK(maps.fold[0] == FoldRun{0, 1, 1, 0});
}

TEST_CASE("ChunkMaps: on one rank nothing is exchanged", "[chunks][maps]") {
  const ChunkMaps second = MapsOf(1, 0, 1, 4);
  CHECK_FALSE(second.is_exchanged());
  CHECK(second.store == Runs{{0, 4, 0, 5}});
  CHECK(second.deliver == Runs{{0, 0, 4, 5}});
  CHECK(second.fold.empty());
  REQUIRE(second.calls.size() == 1);
  CHECK(second.calls[0].segments.cu_q == Cu{0, 5});
  CHECK(second.calls[0].segments.cu_kv == Cu{0, 9});
  const ChunkMaps whole = MapsOf(1, 0, 2, 0);
  CHECK_FALSE(whole.is_stored());
  CHECK(whole.store.empty());
  REQUIRE(whole.calls.size() == 1);
  CHECK(whole.calls[0].segments.cu_q == Cu{0, 3, 5});
  CHECK(whole.calls[0].segments.cu_kv == Cu{0, 3, 5});
}

// A share that is no rank's of any chunk, and what is said about it.
TEST_CASE("ChunkMaps: a wrong share is refused", "[chunks][maps]") {
  RankChunk dependent = ShareOf(2, 1, 1);
  RankChunk whole = ShareOf(2, 1, 2);
  const auto error = [](const RankChunk& chunk, int64_t begin) {
    return BuildChunkMaps(chunk, 1, begin).status().message();
  };
  REQUIRE(error(dependent, 4).empty());
  REQUIRE(error(whole, 0).empty());
  SECTION("begin") {
    CHECK_THAT(error(dependent, 3),
               Catch::StartsWith("chunk 1: after 3 tokens, sequence 0 (5 "
                                 "tokens on ranks [0, 2)) has "));
    CHECK(error(dependent, 5) ==
          "chunk 1: it holds 5 tokens from token 5 on of a sequence of 9");
    CHECK(error(dependent, -1) ==
          "chunk 1: it holds 5 tokens from token -1 on of a sequence of 9");
  }
  SECTION("tokens") {
    dependent.token_count = 3;
    CHECK_FALSE(error(dependent, 4).empty());
    whole.token_count = 6;
    CHECK(error(whole, 0) ==
          "chunk 2: its sequences have 5 tokens, where token_count is 6");
  }
  SECTION("range") {
    dependent.segments[0].low.end += 1;
    CHECK_THAT(error(dependent, 4), Catch::Contains("where the layout has"));
  }
  SECTION("rows") {
    whole.row_count = 1;
    CHECK_THAT(error(whole, 0), Catch::Contains("row_count is 1"));
  }
  SECTION("blocks") {
    whole.segments[1].block = {1, 1};
    CHECK(error(whole, 0) == "chunk 2: its sequences are on several blocks");
  }
  SECTION("rank") {
    for (RankSegment& segment : whole.segments) segment.block = {2, 2};
    CHECK_THAT(error(whole, 0), Catch::Contains("is not on rank 1"));
  }
  SECTION("nothing") {
    whole.segments.clear();
    CHECK(error(whole, 0) == "chunk 2: it has no segments");
  }
  SECTION("group") {
    whole.group_size = 0;
    CHECK(error(whole, 0) == "chunk 2: it is chunk 0 of 0");
    whole.group_size = 2;
    CHECK(error(whole, 0) == "chunk 2: it holds pieces of several sequences");
  }
  SECTION("chunks on two blocks") {
    RankChunkPlan plan = *FourChunks(2).ForRank(1).chunk_plan;
    REQUIRE(BuildChunkProgram(plan, 1, 0).ok());
    plan.chunks[3] = ShareOf(1, 0, 3);
    plan.chunks[3].segments[0].block = {1, 1};
    CHECK(BuildChunkProgram(plan, 1, 0).status().message() ==
          "chunks 0 and 3 are on two blocks");
  }
}

TEST_CASE("ChunkProgram: where and when groups are stored", "[chunks][maps]") {
  const RankChunkPlan plan = *FourChunks(2).ForRank(0).chunk_plan;
  const Result<ChunkProgram> program = BuildChunkProgram(plan, 0, 3);
  REQUIRE(program.ok());
  // Nine tokens and three rows behind them; the others come after that.
  CHECK(program->store_rows == 12);
  CHECK(program->gradient_rows == 9);
  CHECK(program->chunks[1].group == GroupRows{0, 0, 9});
  CHECK(program->chunks[2].group == GroupRows{0, 0, 5});
  std::vector<bool> begins;
  for (const ProgramOperation& op : program->operations) {
    begins.push_back(op.begins_gradients);
  }
  CHECK(begins == std::vector<bool>{false, false, true, false,  // F F B B
                                    false, false,               // F B
                                    false, false});
}

}  // namespace skrull::exec::testing
