// From a rank's share of one chunk to what its exchange and its attention calls
// need. Pure.
//
// A chunk holds whole sequences (standalone), or the tokens [begin, begin + n)
// of one (dependent; ChunkFlow, arXiv 2503.02356). The CP group cuts each piece
// in zigzag order as if it were a sequence of its own, so slots, pack and
// deliver are those of maps.h. The queries of a zigzag range [b, e) of a piece
// need the keys [0, begin + e) of the sequence: the chunks before, which the
// store holds in natural order, and the chunk's own, gathered behind them. So a
// range is one bottom-right causal segment whose keys lie in the store as they
// are. In a chunk of several sequences, prefixes are copied one behind another,
// for a call's segments cover all of its key rows.
//
// Store rows are those of a group: the tokens of the split sequence, or of a
// standalone chunk's sequences one after another. Chunks of whole sequences on
// a group of one rank need no store.
#ifndef SKRULL_CUDA_CHUNK_MAPS_H_
#define SKRULL_CUDA_CHUNK_MAPS_H_

#include <cstdint>
#include <vector>

#include "skrull/cuda/maps.h"
#include "skrull/cuda/row_runs.h"
#include "skrull/cuda/status.h"
#include "skrull/planner/chunk_plan.h"
#include "skrull/planner/layout.h"

namespace skrull::exec {

enum class KeySource : int8_t {
  kRows,    // the rank's rows
  kStore,   // the group's store rows
  kCopies,  // copies of store rows, see ChunkMaps::copies
};

// One attention call.
struct ChunkCall {
  SegmentList segments;
  int32_t first_query = 0;  // row of the rank
  // Row of the call's dK, dV. Key rows are read from 0 on.
  int32_t first_gradient = 0;
  // Of a dependent chunk: store row of the gradients (dst, added to) <- row of
  // the call's dK, dV (src).
  std::vector<CopyRun> add;

  friend bool operator==(const ChunkCall&, const ChunkCall&) = default;
};

struct ChunkMaps {
  Block block;             // the CP group
  int32_t rows = 0;        // of the rank
  bool dependent = false;  // one piece of a split sequence
  int32_t store_end = 0;   // one behind the last store row of its own tokens
  int32_t slot_rows = 0;   // 0 on a group of one rank

  // Slot row (dst) <- row of the rank (src).
  std::vector<CopyRun> pack;
  // Store row (dst) <- gathered row, or row of the rank where nothing is
  // exchanged (src).
  std::vector<CopyRun> store;
  // For KeySource::kCopies: key row (dst) <- store row (src).
  std::vector<CopyRun> copies;
  KeySource keys = KeySource::kRows;
  std::vector<ChunkCall> calls;  // none on a rank without rows
  // Rows of the calls' dK, dV together; 0 for KeySource::kRows.
  int32_t gradient_rows = 0;
  // Gathered row (dst) <- gradient rows of the store, of a dependent chunk, or
  // of the call. Pad rows become zeros.
  std::vector<FoldRun> fold;
  // Row of the rank (dst) <- slot row, or gradient row of the store where
  // nothing is exchanged (src).
  std::vector<CopyRun> deliver;

  bool is_stored() const { return keys != KeySource::kRows; }
  bool is_exchanged() const { return slot_rows > 0; }
  int64_t gathered_rows() const { return int64_t{block.degree} * slot_rows; }
  int64_t copied_rows() const {
    return copies.empty() ? 0 : copies.back().dst + copies.back().count;
  }
  friend bool operator==(const ChunkMaps&, const ChunkMaps&) = default;
};

// The maps of rank `rank`. `begin`: where a dependent chunk begins in its
// sequence; 0 for others. O(segments * degree). Errors: INVALID_ARGUMENT naming
// the chunk and the segment, if the share is no rank's share of any chunk, or
// if rows do not fit int32.
Result<ChunkMaps> BuildChunkMaps(const RankChunk& chunk, int32_t rank,
                                 int64_t begin);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CHUNK_MAPS_H_
