// From a rank's share of a micro-batch to what its exchange and its attention
// calls need: segments, and maps of rows. Pure; every rank of a block derives
// the same blocks, slots and orders from its own share of the same plan.
//
// The rank's rows are [local sequences][per sharded sequence: low, high]
// (layout.h). A block's ranks exchange slots: rank r's rows of the block's
// sequences in row order, in slot_rows = ceil(tokens / degree) rows, so at most
// one pad row a rank, which nothing reads. The gathered buffer of a block is
// its slots in rank order.
//
// Queries of chunk c of a sequence need the keys [0, end of c): that prefix in
// natural order, with a bottom-right causal mask. So the sharded call has one
// segment for each non-empty chunk, its queries being rows [local_rows, rows)
// as they lie, and its keys the prefixes one after another. Prefixes end at
// chunk borders, so both maps are lists of whole chunks.
#ifndef SKRULL_CUDA_MAPS_H_
#define SKRULL_CUDA_MAPS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/cuda/row_runs.h"
#include "skrull/cuda/segments.h"
#include "skrull/cuda/status.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/rank_plan.h"

namespace skrull::exec {

// A growing list of segments; empty ones are left out.
struct SegmentList {
  Mask mask = Mask::kCausalBottomRight;
  std::vector<int32_t> cu_q = {0};
  std::vector<int32_t> cu_kv = {0};
  int32_t max_q = 0;
  int32_t max_kv = 0;

  void Add(int32_t q_rows, int32_t kv_rows);  // REQUIRES: q_rows >= 1
  bool empty() const { return cu_q.size() == 1; }
  SegmentBounds bounds() const;

  friend bool operator==(const SegmentList&, const SegmentList&) = default;
};

// One block's exchange, seen from one of its ranks, which may hold no rows.
struct BlockMaps {
  Block block;
  int32_t rank_in_block = 0;
  int64_t token_count = 0;  // of all its sequences in the micro-batch
  int32_t slot_rows = 0;    // the same on every rank of the block
  int32_t rows = 0;         // of this rank: slot_rows, or one fewer

  // Slot row (dst) <- row of the rank (src).
  std::vector<CopyRun> pack;
  // Row of the rank (dst) <- slot row (src): the reverse.
  std::vector<CopyRun> deliver;
  // Key row of the sharded call (dst) <- gathered row (src).
  std::vector<CopyRun> unpack;
  // Gathered row (dst) <- key rows of the sharded call, of the high chunk's
  // segment and of the low one's. Pad rows become zeros.
  std::vector<FoldRun> fold;

  int64_t gathered_rows() const { return int64_t{block.degree} * slot_rows; }
  friend bool operator==(const BlockMaps&, const BlockMaps&) = default;
};

struct MicroBatchMaps {
  int32_t rows = 0;        // of the rank
  int32_t local_rows = 0;  // the first of them

  // Local sequences: all, and cut in two parts for the backward pass, whose two
  // collectives hide behind one part each. Each part may be empty; without
  // blocks the first holds all.
  SegmentList local;
  SegmentList local_first;
  SegmentList local_second;

  SegmentList sharded;
  std::vector<BlockMaps> blocks;  // ascending: the order of the collectives

  friend bool operator==(const MicroBatchMaps&,
                         const MicroBatchMaps&) = default;
};

// The maps of rank `rank`. The first part of the local sequences gets about
// `first_share` of their attention FLOPs, 0 <= first_share <= 1.
// O(segments * degree). Errors: INVALID_ARGUMENT naming the segment, if the
// share is no rank's share of any plan (see layout.h), or if rows do not fit
// int32.
Result<MicroBatchMaps> BuildMaps(const RankMicroBatch& micro_batch,
                                 int32_t rank, double first_share);

// Position of each of the rank's rows in its sequence: position_ids. O(rows).
std::vector<int32_t> RowPositions(std::span<const RankSegment> segments);
// Index of each row's sequence in the global batch. O(rows).
std::vector<int32_t> RowSequences(std::span<const RankSegment> segments);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_MAPS_H_
