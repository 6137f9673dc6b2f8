// Chunk plans of skrull_exec_chunks.h.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "skrull/cuda/c_api/call.h"
#include "skrull/cuda/c_api/handles.h"
#include "skrull/cuda/c_api/plan_arrays.h"
#include "skrull/cuda/c_api/skrull_exec_chunks.h"
#include "skrull/cuda/maps.h"

namespace skrull::exec::c_api {
namespace {

// Store rows are int32.
constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

static_assert(SKRULL_CHUNK_FORWARD == static_cast<int>(ChunkPass::kForward));
static_assert(SKRULL_CHUNK_FORWARD_DISCARD ==
              static_cast<int>(ChunkPass::kForwardDiscard));
static_assert(SKRULL_CHUNK_RECOMPUTE ==
              static_cast<int>(ChunkPass::kRecompute));
static_assert(SKRULL_CHUNK_BACKWARD == static_cast<int>(ChunkPass::kBackward));

// Sizes, and pointers where there is something to point to.
Status CheckArrays(const skrull_rank_chunk_plan& given) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckZero("rank plan: reserved", given.reserved));
  SKRULL_EXEC_RETURN_IF_ERROR(CheckRank(given.rank, given.ranks));
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckRange("chunk_count", given.chunk_count, 0, kMaxItems));
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckRange("operation_count", given.operation_count, 0, kMaxItems));
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(given.digest, "rank plan: digest"));
  if (given.operation_count > 0) {
    SKRULL_EXEC_RETURN_IF_ERROR(
        NotNull(given.operations, "rank plan: operations"));
  }
  if (given.chunk_count == 0) return {};
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(given.chunks, "rank plan: chunks"));
  return CheckOffsets(given.segment_offsets, given.chunk_count, given.segments);
}

Result<RankChunk> ReadChunk(const skrull_rank_chunk_plan& given,
                            int32_t index) {
  const skrull_chunk& c = given.chunks[index];
  const std::string name = "chunks[" + std::to_string(index) + "].";
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckZero(("rank plan: " + name + "reserved").c_str(), c.reserved));
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckRange((name + "token_count").c_str(), c.token_count, 1, kMaxTokens));
  if (!(c.token_weight >= 0 && c.token_weight <= 1)) {  // NaN fails both
    return InvalidArgument("rank plan: " + name + "token_weight is " +
                           std::to_string(c.token_weight));
  }
  Result<std::vector<RankSegment>> segments =
      ReadSegments(given.segments, given.segment_offsets[index],
                   given.segment_offsets[index + 1], given.ranks);
  SKRULL_EXEC_RETURN_IF_ERROR(segments.status());
  RankChunk chunk{.chunk = c.chunk,
                  .segments = *std::move(segments),
                  .row_count = 0,
                  .group_index = c.group_index,
                  .group_size = c.group_size,
                  .token_weight = c.token_weight,
                  .token_count = c.token_count};
  for (const RankSegment& segment : chunk.segments) {
    chunk.row_count += segment.rows();
  }
  return chunk;
}

Status Build(const skrull_rank_chunk_plan& given, skrull_chunk_plan* built) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckArrays(given));
  built->plan.digest = given.digest;
  built->plan.rank = given.rank;
  Result<std::vector<Block>> blocks =
      ReadBlocks(given.blocks, given.block_count, given.ranks);
  SKRULL_EXEC_RETURN_IF_ERROR(blocks.status());
  built->plan.blocks = *std::move(blocks);
  RankChunkPlan& plan = built->plan.chunk_plan.emplace();
  plan.retained_chunks = given.retained_chunks;
  for (int32_t i = 0; i < given.chunk_count; ++i) {
    Result<RankChunk> chunk = ReadChunk(given, i);
    SKRULL_EXEC_RETURN_IF_ERROR(chunk.status());
    plan.chunks.push_back(*std::move(chunk));
  }
  for (int32_t i = 0; i < given.operation_count; ++i) {
    const skrull_chunk_operation& operation = given.operations[i];
    const std::string name = "operations[" + std::to_string(i) + "].pass";
    SKRULL_EXEC_RETURN_IF_ERROR(CheckRange(name.c_str(), operation.pass,
                                           SKRULL_CHUNK_FORWARD,
                                           SKRULL_CHUNK_BACKWARD));
    plan.operations.push_back({.pass = static_cast<ChunkPass>(operation.pass),
                               .chunk = operation.chunk});
  }
  Result<ChunkProgram> program =
      BuildChunkProgram(plan, given.rank, /*tail_rows=*/0);
  if (!program.ok()) {
    return {program.status().code(),
            "rank plan: " + program.status().message()};
  }
  built->program = *std::move(program);
  return {};
}

// The operation's chunk.
Result<const RankChunk*> Find(const skrull_chunk_plan* plan,
                              int32_t operation) {
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(plan, "plan"));
  const auto& operations = plan->program.operations;
  const auto count = static_cast<int64_t>(operations.size());
  if (operation < 0 || operation >= count) {
    return InvalidArgument("operation is " + std::to_string(operation) +
                           ", where the plan has " + std::to_string(count));
  }
  const int32_t chunk = operations[static_cast<size_t>(operation)].chunk;
  return &plan->plan.chunk_plan->chunks[static_cast<size_t>(chunk)];
}

// Copies what get(segments of the operation's chunk) returns to a caller's
// array.
template <class Get>
int32_t Query(const skrull_chunk_plan* plan, int32_t operation, int32_t* to,
              int64_t count, const Get& get) {
  return Call([&]() -> Status {
    const Result<const RankChunk*> chunk = Find(plan, operation);
    SKRULL_EXEC_RETURN_IF_ERROR(chunk.status());
    return CopyOut(get((*chunk)->segments), to, count);
  });
}

}  // namespace
}  // namespace skrull::exec::c_api

using skrull::RankChunk;
using skrull::exec::Result;
using skrull::exec::Status;
using namespace skrull::exec::c_api;  // NOLINT: one file of one interface

extern "C" {

int32_t skrull_chunk_plan_create(const skrull_rank_chunk_plan* rank_plan,
                                 skrull_chunk_plan** plan) {
  return Call([&]() -> Status {
    skrull_rank_chunk_plan read;
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(plan, "plan"));
    SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(rank_plan, "rank plan", &read));
    auto built = std::make_unique<skrull_chunk_plan>();
    SKRULL_EXEC_RETURN_IF_ERROR(Build(read, built.get()));
    *plan = built.release();
    return {};
  });
}

void skrull_chunk_plan_destroy(skrull_chunk_plan* plan) { delete plan; }

int32_t skrull_chunk_plan_operation_count(const skrull_chunk_plan* plan,
                                          int32_t* count) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(plan, "plan"));
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(count, "count"));
    *count = static_cast<int32_t>(plan->program.operations.size());
    return {};
  });
}

int32_t skrull_chunk_plan_operation(const skrull_chunk_plan* plan,
                                    int32_t operation,
                                    skrull_chunk_operation_info* info) {
  return Call([&]() -> Status {
    const Result<const RankChunk*> chunk = Find(plan, operation);
    SKRULL_EXEC_RETURN_IF_ERROR(chunk.status());
    skrull_chunk_operation_info filled;
    SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(info, "operation info", &filled));
    filled.pass = static_cast<int32_t>(
        plan->program.operations[static_cast<size_t>(operation)].pass);
    filled.chunk = (*chunk)->chunk;
    filled.group_index = (*chunk)->group_index;
    filled.group_size = (*chunk)->group_size;
    filled.rows = (*chunk)->row_count;
    filled.token_count = (*chunk)->token_count;
    filled.token_weight = (*chunk)->token_weight;
    *info = filled;
    return {};
  });
}

int32_t skrull_chunk_plan_positions(const skrull_chunk_plan* plan,
                                    int32_t operation, int32_t* positions,
                                    int64_t count) {
  return Query(plan, operation, positions, count, skrull::exec::RowPositions);
}

int32_t skrull_chunk_plan_sequences(const skrull_chunk_plan* plan,
                                    int32_t operation, int32_t* sequences,
                                    int64_t count) {
  return Query(plan, operation, sequences, count, skrull::exec::RowSequences);
}

}  // extern "C"
