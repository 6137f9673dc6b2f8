// The chunk executor's C interface computes what the C++ interface does.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "skrull/cuda/c_api/skrull_exec_chunks.h"
#include "skrull/cuda/maps.h"
#include "skrull/tests/cuda/c_api_chunk_rank.h"
#include "skrull/tests/cuda/chunk_pool.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

using Tensors = std::vector<ChunkRunResult::ChunkTensors>;  // [layer]

const RankChunk& ChunkOf(const RankPlan& plan, int32_t chunk) {
  return *std::ranges::find(plan.chunk_plan->chunks, chunk, &RankChunk::chunk);
}

// A trainer of one rank that knows what the C interface tells it. Recomputation
// begins with tensors of its own.
int32_t Train(CChunkRank* me, const RankPlan& plan, const SequenceData* data,
              int64_t sequences, const RunOptions& options, Tensors* tensors) {
  int32_t count = 0;
  int32_t code = skrull_chunk_plan_operation_count(me->plan, &count);
  for (int32_t i = 0; i < count; ++i) {
    skrull_chunk_operation_info info{};
    info.struct_bytes = sizeof(info);
    code = skrull_chunk_plan_operation(me->plan, i, &info);
    if (code != SKRULL_OK) return code;
    for (int32_t n = 0; n < options.layers; ++n) {
      if (info.pass == SKRULL_CHUNK_BACKWARD) {
        const int32_t layer = options.layers - 1 - n;
        const skrull_backward_tensors b =
            BackwardToC((*tensors)[static_cast<size_t>(layer)].at(info.chunk));
        code = skrull_chunk_executor_backward(me->executor, me->step, i, layer,
                                              &b, me->stream);
      } else {
        RankMicroBatch rows;
        rows.segments = ChunkOf(plan, info.chunk).segments;
        rows.row_count = info.rows;
        RankTensors& mine = (*tensors)[static_cast<size_t>(n)][info.chunk];
        // What discarded passes write goes when the stream has passed it.
        code = skrull_device_synchronize(me->device, me->stream);
        if (code != SKRULL_OK) return code;
        mine = MakeTensors(rows, data + n * sequences, options);
        const skrull_forward_tensors f = ForwardToC(mine);
        code = skrull_chunk_executor_forward(me->executor, me->step, i, n, &f,
                                             me->stream);
      }
      if (code != SKRULL_OK) return code;
    }
  }
  return skrull_chunk_executor_wait(me->executor, 60);
}

ChunkRunResult RunThroughC(const TestChunks& chunks,
                           const std::vector<SequenceData>& data,
                           const RunOptions& options) {
  const auto count = static_cast<size_t>(chunks.ranks());
  ChunkRunResult result;
  result.store_bytes.resize(count);
  std::vector<Tensors> tensors(count);
  for (Tensors& mine : tensors) {
    mine.resize(static_cast<size_t>(options.layers));
  }
  std::vector<std::unique_ptr<CChunkRank>> ranks;
  for (skrull_comm* comm : NewPool(chunks.ranks())) {
    ranks.push_back(std::make_unique<CChunkRank>(comm, options.layers));
  }
  const auto answers = OnRanks(chunks.ranks(), [&](int32_t rank) {
    const auto r = static_cast<size_t>(rank);
    CChunkRank& me = *ranks[r];
    const RankPlan plan = chunks.ForRank(rank);
    if (const int32_t code = me.Prepare(plan, chunks.ranks())) return code;
    const int32_t code =
        Train(&me, plan, data.data(), std::ssize(chunks.sequence_lengths()),
              options, &tensors[r]);
    if (code != SKRULL_OK) return code;
    return skrull_chunk_executor_store_bytes(me.executor,
                                             &result.store_bytes[r]);
  });
  for (const Answer& answer : answers) {
    INFO(answer.message);
    CHECK(answer.code == SKRULL_OK);
  }
  result.tensors.resize(static_cast<size_t>(options.layers));
  for (size_t layer = 0; layer < result.tensors.size(); ++layer) {
    for (Tensors& mine : tensors) {
      result.tensors[layer].push_back(std::move(mine[layer]));
    }
  }
  return result;
}

// Two groups of two ranks; split sequences and whole ones; a chunk that is
// shorter than its group.
TestChunks TwoGroups() {
  TestChunks chunks(2, 2, 1);
  chunks.AddSplit(0, {9, 9, 1});
  chunks.AddWhole(0, {5, 1, 8});
  chunks.AddSplit(1, {7, 4});
  return chunks;
}

}  // namespace

TEST_CASE("C API: a chunk plan says what each operation needs",
          "[c_api][chunks]") {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const TestChunks chunks = RandomChunks(&random, 6);
    for (int32_t rank = 0; rank < chunks.ranks(); ++rank) {
      const RankPlan mine = chunks.ForRank(rank);
      const ChunkArrays arrays(mine, chunks.ranks());
      const skrull_rank_chunk_plan given = arrays.Get();
      skrull_chunk_plan* plan = nullptr;
      REQUIRE(skrull_chunk_plan_create(&given, &plan) == SKRULL_OK);
      const auto& operations = mine.chunk_plan->operations;
      int32_t count = -1;
      REQUIRE(skrull_chunk_plan_operation_count(plan, &count) == SKRULL_OK);
      REQUIRE(count == static_cast<int32_t>(operations.size()));
      for (int32_t i = 0; i < count; ++i) {
        const auto [pass, chunk] = operations[static_cast<size_t>(i)];
        const RankChunk& share = ChunkOf(mine, chunk);
        skrull_chunk_operation_info info{};
        info.struct_bytes = sizeof(info);
        REQUIRE(skrull_chunk_plan_operation(plan, i, &info) == SKRULL_OK);
        CHECK(info.pass == static_cast<int32_t>(pass));
        CHECK(info.chunk == chunk);
        CHECK(info.group_index == share.group_index);
        CHECK(info.group_size == share.group_size);
        CHECK(info.rows == share.row_count);
        CHECK(info.token_count == share.token_count);
        CHECK(info.token_weight == share.token_weight);
        std::vector<int32_t> positions(static_cast<size_t>(info.rows));
        std::vector<int32_t> sequences(static_cast<size_t>(info.rows));
        REQUIRE(skrull_chunk_plan_positions(plan, i, positions.data(),
                                            info.rows) == SKRULL_OK);
        REQUIRE(skrull_chunk_plan_sequences(plan, i, sequences.data(),
                                            info.rows) == SKRULL_OK);
        CHECK(positions == RowPositions(share.segments));
        CHECK(sequences == RowSequences(share.segments));
        CheckRefused(skrull_chunk_plan_positions(plan, i, positions.data(),
                                                 info.rows + 1),
                     "count is");
      }
      CheckRefused(skrull_chunk_plan_positions(plan, count, nullptr, 0),
                   "operation is " + std::to_string(count));
      CheckRefused(skrull_chunk_plan_sequences(plan, -1, nullptr, 0),
                   "operation is -1");
      skrull_chunk_plan_destroy(plan);
    }
  }
}

TEST_CASE("C API: chunks give the C++ interface's bits, and dense attention",
          "[c_api][chunks]") {
  RunOptions options;
  options.executor.problem = kProblem;
  options.layers = 2;
  for (uint64_t seed = 0; seed <= 8; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const TestChunks chunks =
        seed == 0 ? TwoGroups() : RandomChunks(&random, 4);
    const auto data = RandomData(&random, kProblem, chunks, options.layers);
    const ChunkRunResult want = RunChunks(chunks, data, options);
    const ChunkRunResult got = RunThroughC(chunks, data, options);
    REQUIRE(SameBits(want, got));
    CHECK(got.store_bytes == want.store_bytes);
    CHECK(CompareWithDense(chunks, data, kProblem, got).worst() < 1e-10);
  }
}

TEST_CASE("C API: another chunk plan on one rank is refused on all",
          "[c_api][chunks]") {
  const TestChunks chunks = TwoGroups();
  std::vector<std::unique_ptr<CChunkRank>> ranks;
  for (skrull_comm* comm : NewPool(4)) {
    ranks.push_back(std::make_unique<CChunkRank>(comm));
  }
  const bool none = GENERATE(false, true);
  auto answers = OnRanks(4, [&](int32_t rank) {
    CChunkRank& me = *ranks[static_cast<size_t>(rank)];
    if (rank == 2 && none) {
      return skrull_chunk_executor_prepare(me.executor, nullptr, &me.step);
    }
    return me.Prepare(chunks.ForRank(rank), 4,
                      rank == 2 ? std::string(64, 'e') : kDigest);
  });
  for (const Answer& answer : answers) {
    INFO(answer.message);
    CHECK(answer.code == SKRULL_FAILED_PRECONDITION);
    CHECK_THAT(answer.message, Catch::Contains("rank 2"));
  }
  // The next one goes.
  answers = OnRanks(4, [&](int32_t rank) {
    return ranks[static_cast<size_t>(rank)]->Prepare(chunks.ForRank(rank), 4);
  });
  for (const Answer& answer : answers) CHECK(answer.code == SKRULL_OK);
}

TEST_CASE("C API: a wrong call of one rank ends the chunks of all",
          "[c_api][chunks]") {
  const int kind = GENERATE(0, 1, 2, 3, 4, 5);
  INFO("kind " << kind);
  TestChunks chunks(1, 2, 1);
  chunks.AddSplit(0, {9, 6});
  std::mt19937_64 random(3);
  RunOptions options;
  options.executor.problem = kProblem;
  const auto data = RandomData(&random, kProblem, chunks);
  std::vector<std::unique_ptr<CChunkRank>> ranks;
  for (skrull_comm* comm : NewPool(2)) {
    ranks.push_back(std::make_unique<CChunkRank>(comm));
  }
  std::vector<RankTensors> tensors(2);
  const auto answers = OnRanks(2, [&](int32_t rank) {
    CChunkRank& me = *ranks[static_cast<size_t>(rank)];
    const RankPlan plan = chunks.ForRank(rank);
    if (const int32_t code = me.Prepare(plan, 2)) return code;
    RankMicroBatch rows;
    rows.segments = plan.chunk_plan->chunks[0].segments;
    rows.row_count = plan.chunk_plan->chunks[0].row_count;
    RankTensors& t = tensors[static_cast<size_t>(rank)];
    t = MakeTensors(rows, data.data(), options);
    skrull_forward_tensors f = ForwardToC(t);
    int32_t operation = 0;
    int32_t layer = 0;
    void* stream = me.stream;
    const skrull_chunk_step* step = me.step;
    if (rank == 1) {
      if (kind == 0) f.struct_bytes = 3;
      if (kind == 1) stream = &layer;
      if (kind == 2) operation = 1;  // not its turn
      if (kind == 3) layer = 1;
      if (kind == 4) step = nullptr;
      if (kind == 5) f.o.rows -= 1;
    }
    const int32_t code = skrull_chunk_executor_forward(
        me.executor, step, operation, layer, &f, stream);
    if (code != SKRULL_OK) return code;
    return skrull_chunk_executor_wait(me.executor, 100);
  });
  INFO(answers[0].message << "; " << answers[1].message);
  CHECK(answers[1].code == SKRULL_INVALID_ARGUMENT);
  CHECK(answers[0].code == SKRULL_ABORTED);
  for (int32_t rank = 0; rank < 2; ++rank) {
    CHECK(skrull_chunk_executor_poll(
              ranks[static_cast<size_t>(rank)]->executor) ==
          answers[static_cast<size_t>(rank)].code);
  }
}

TEST_CASE("C API: an abort of a chunk executor reaches the others",
          "[c_api][chunks]") {
  const TestChunks chunks = TwoGroups();
  std::vector<std::unique_ptr<CChunkRank>> ranks;
  for (skrull_comm* comm : NewPool(4)) {
    ranks.push_back(std::make_unique<CChunkRank>(comm));
  }
  const auto answers = OnRanks(4, [&](int32_t rank) {
    CChunkRank& me = *ranks[static_cast<size_t>(rank)];
    return rank == 3 ? skrull_chunk_executor_abort(me.executor, "lunch")
                     : me.Prepare(chunks.ForRank(rank), 4);
  });
  CHECK(answers[3].code == SKRULL_OK);
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK(answers[rank].code == SKRULL_ABORTED);
    CHECK_THAT(answers[rank].message,
               Catch::Contains("rank 3") && Catch::Contains("lunch"));
  }
  CHECK(skrull_chunk_executor_poll(ranks[3]->executor) == SKRULL_ABORTED);
  CheckRefused(skrull_chunk_executor_wait(ranks[3]->executor, -1), "seconds");
}

}  // namespace skrull::exec::testing
