#include "skrull/planner/chunk_plan.h"

#include <limits>
#include <utility>

namespace skrull {
namespace {

// The rank's segments of one chunk, in row order.
std::vector<RankSegment> ChunkSegments(const Chunk& chunk, int32_t rank,
                                       int32_t cp_size) {
  std::vector<SequencePlacement> placements;
  placements.reserve(chunk.pieces.size());
  for (const ChunkPiece& piece : chunk.pieces) {
    placements.push_back(
        {.sequence = piece.sequence,
         .token_count = static_cast<int32_t>(piece.range.size()),
         .first_rank = rank - rank % cp_size,
         .degree = cp_size});
  }
  // One block, so the segments come in the order of the pieces.
  std::vector<RankSegment> segments = RankSegments(placements, rank);
  for (size_t i = 0; i < segments.size(); ++i) {
    const ChunkPiece& piece = chunk.pieces[i];
    segments[i].token_count = piece.token_count;
    for (TokenRange* range : {&segments[i].low, &segments[i].high}) {
      range->begin += piece.range.begin;
      range->end += piece.range.begin;
    }
  }
  return segments;
}

}  // namespace

bool IsShareable(const ChunkPlan& plan) {
  constexpr int64_t kMaxEnd = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMaxSum = int64_t{1} << 62;
  if (plan.cp_size < 1) return false;
  int64_t sum = 0;
  for (const Chunk& chunk : plan.chunks) {
    if (chunk.dp_rank < 0 ||
        static_cast<size_t>(chunk.dp_rank) >= plan.schedules.size() ||
        chunk.token_count < 1 || chunk.token_count > kMaxSum - sum) {
      return false;
    }
    sum += chunk.token_count;
    for (const ChunkPiece& piece : chunk.pieces) {
      if (piece.range.begin < 0 || piece.range.begin > piece.range.end ||
          piece.range.end > kMaxEnd) {
        return false;
      }
    }
  }
  return true;
}

RankChunkPlan MakeRankChunkPlan(const ChunkPlan& plan, int32_t rank,
                                std::span<const int32_t> indices,
                                const ChunkSchedule& schedule,
                                int64_t batch_token_count) {
  RankChunkPlan out{.retained_chunks = plan.retained_chunks,
                    .chunks = {},
                    .operations = schedule.operations};
  out.chunks.reserve(indices.size());
  for (const int32_t index : indices) {
    const Chunk& chunk = plan.chunks[static_cast<size_t>(index)];
    RankChunk share{.chunk = index,
                    .segments = ChunkSegments(chunk, rank, plan.cp_size),
                    .row_count = 0,
                    .group_index = chunk.group_index,
                    .group_size = chunk.group_size,
                    .token_weight = 0,
                    .token_count = chunk.token_count};
    for (const RankSegment& segment : share.segments) {
      share.row_count += segment.rows();
    }
    share.token_weight = static_cast<double>(share.row_count) /
                         static_cast<double>(batch_token_count);
    out.chunks.push_back(std::move(share));
  }
  return out;
}

RankChunkPlan MakeRankChunkPlan(const ChunkPlan& plan, int32_t rank,
                                int64_t batch_token_count) {
  const int32_t dp_rank = rank / plan.cp_size;
  if (static_cast<size_t>(dp_rank) >= plan.schedules.size()) {
    return {.retained_chunks = plan.retained_chunks,
            .chunks = {},
            .operations = {}};
  }
  std::vector<int32_t> indices;
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    if (plan.chunks[i].dp_rank == dp_rank) {
      indices.push_back(static_cast<int32_t>(i));
    }
  }
  return MakeRankChunkPlan(plan, rank, indices,
                           plan.schedules[static_cast<size_t>(dp_rank)],
                           batch_token_count);
}

}  // namespace skrull
