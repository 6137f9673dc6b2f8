// Plans of POLICY_CHUNK_FLOW, as plain data: what skrull.v1.ChunkPlan and
// RankChunkPlan say. Depends on the layout alone, as rank plans do.
#ifndef SKRULL_SERVER_PLANNER_CHUNK_PLAN_H_
#define SKRULL_SERVER_PLANNER_CHUNK_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/planner/layout.h"

namespace skrull {

// Tokens of one sequence inside a chunk.
struct ChunkPiece {
  int32_t sequence = 0;     // index in the global batch
  int32_t token_count = 0;  // length of the whole sequence, tokens
  TokenRange range;         // its tokens in this chunk

  friend bool operator==(const ChunkPiece&, const ChunkPiece&) = default;
};

// Whole sequences, or a part of one. The CP group of `dp_rank` shares it: each
// piece is cut in zigzag order like a sequence of the piece's length.
struct Chunk {
  int32_t dp_rank = 0;
  std::vector<ChunkPiece> pieces;
  // Place among the chunks of the same sequence, and their number; 0 and 1 for
  // a chunk of whole sequences.
  int32_t group_index = 0;
  int32_t group_size = 1;
  int64_t token_count = 0;
  double predicted_seconds = 0;  // forward and backward, no recomputation

  friend bool operator==(const Chunk&, const Chunk&) = default;
};

enum class ChunkPass : int8_t {
  kForward,         // keeps activations for the backward pass
  kForwardDiscard,  // keeps keys and values only
  kRecompute,       // forward again, keeping activations
  kBackward,
};

struct ChunkOperation {
  ChunkPass pass = ChunkPass::kForward;
  int32_t chunk = 0;  // index in ChunkPlan::chunks

  friend bool operator==(const ChunkOperation&,
                         const ChunkOperation&) = default;
};

// What one DP rank does, in order.
struct ChunkSchedule {
  int32_t dp_rank = 0;
  std::vector<ChunkOperation> operations;
  double predicted_seconds = 0;  // overheads included

  friend bool operator==(const ChunkSchedule&, const ChunkSchedule&) = default;
};

struct ChunkPlan {
  int64_t chunk_size_tokens = 0;
  int64_t retained_chunks = 0;
  std::vector<Chunk> chunks;
  std::vector<ChunkSchedule> schedules;  // one for each DP rank, in order
  int32_t cp_size = 1;                   // ranks that share a chunk

  friend bool operator==(const ChunkPlan&, const ChunkPlan&) = default;
};

// A rank's share of one chunk.
struct RankChunk {
  int32_t chunk = 0;  // index in ChunkPlan::chunks
  // In row order; ranges are positions in the whole sequence.
  std::vector<RankSegment> segments;
  int64_t row_count = 0;  // rows of this rank, tokens
  int32_t group_index = 0;
  int32_t group_size = 1;
  double token_weight = 0;  // row_count / tokens of the whole batch
  // Of the chunk, over all ranks of the CP group. The segments of a rank do not
  // tell: where a piece ends may follow from another rank's rows alone.
  int64_t token_count = 0;

  friend bool operator==(const RankChunk&, const RankChunk&) = default;
};

// A rank's share of a ChunkPlan: the chunks and operations of its DP rank.
struct RankChunkPlan {
  int64_t retained_chunks = 0;
  std::vector<RankChunk> chunks;
  std::vector<ChunkOperation> operations;

  friend bool operator==(const RankChunkPlan&, const RankChunkPlan&) = default;
};

// True if shares of the plan can be made, whatever bytes it came from: cp_size
// >= 1; every chunk's DP rank has a schedule; pieces have 0 <= begin <= end <
// 2^31; chunks' tokens are >= 1 and, together, below 2^62. A legal plan is
// shareable. O(pieces).
bool IsShareable(const ChunkPlan& plan);

// The share of `rank` of the chunks `indices` (ascending) and the operations of
// `schedule`: those of its DP rank, rank / plan.cp_size. REQUIRES: rank >= 0;
// IsShareable(plan); indices lie in plan.chunks; batch_token_count >= 1.
// O(the chunks' pieces).
RankChunkPlan MakeRankChunkPlan(const ChunkPlan& plan, int32_t rank,
                                std::span<const int32_t> indices,
                                const ChunkSchedule& schedule,
                                int64_t batch_token_count);

// The same, with the chunks of rank's DP rank looked up; no chunks and
// operations for a rank outside the plan's pool. O(chunks + the DP rank's
// pieces).
RankChunkPlan MakeRankChunkPlan(const ChunkPlan& plan, int32_t rank,
                                int64_t batch_token_count);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_CHUNK_PLAN_H_
