#include "skrull/cuda/ring_maps.h"

#include <algorithm>
#include <cstddef>

namespace skrull::exec {
namespace {

void AddBoth(std::vector<CopyRun>* forth, std::vector<CopyRun>* back,
             int32_t dst, int64_t src, int64_t count) {
  const auto begin =
      forth->empty() ? 0 : forth->back().begin + forth->back().count;
  const auto from = static_cast<int32_t>(src);
  const auto rows = static_cast<int32_t>(count);
  forth->push_back({begin, dst, from, rows});
  back->push_back({begin, from, dst, rows});
}

// Where a pass over the segments stands in one block.
struct BlockCursor {
  int32_t rotation = 0;
  int64_t slot_row = 0;  // of the travelling slot
};

RingStep BuildStep(const RankMicroBatch& micro_batch,
                   const MicroBatchMaps& maps, int32_t t) {
  RingStep step;
  step.segments.mask = t == 0 ? Mask::kCausalBottomRight : Mask::kFull;
  step.keys.resize(maps.blocks.size());
  std::vector<BlockCursor> cursors(maps.blocks.size());
  int64_t row = 0;  // of the sharded rows
  for (const RankSegment& segment : micro_batch.segments) {
    if (segment.is_local()) continue;
    const Block block = segment.block;
    const auto found =
        std::ranges::lower_bound(maps.blocks, block, {}, &BlockMaps::block);
    const auto b = static_cast<size_t>(found - maps.blocks.begin());
    BlockCursor& cursor = cursors[b];
    const int32_t rank = found->rank_in_block;
    if (t < block.degree) {
      const int32_t source = (rank - t + block.degree) % block.degree;
      const ZigzagShard held =
          Shard(segment.token_count, block.degree, cursor.rotation, source);
      const int64_t skip = source > rank ? segment.low.size() : 0;
      const int64_t queries = segment.rows() - skip;
      const int64_t keys = source < rank ? held.low.size() : held.rows();
      if (queries > 0 && keys > 0) {
        AddBoth(&step.queries, &step.results, step.segments.cu_q.back(),
                row + skip, queries);
        AddBoth(&step.keys[b].take, &step.keys[b].give,
                step.segments.cu_kv.back(), cursor.slot_row, keys);
        step.segments.Add(static_cast<int32_t>(queries),
                          static_cast<int32_t>(keys));
      }
      cursor.slot_row += held.rows();
    }
    row += segment.rows();
    cursor.rotation =
        NextRotation(segment.token_count, block.degree, cursor.rotation);
  }
  return step;
}

}  // namespace

std::vector<RingStep> BuildRingSteps(const RankMicroBatch& micro_batch,
                                     const MicroBatchMaps& maps) {
  int32_t count = 0;
  for (const BlockMaps& block : maps.blocks) {
    count = std::max(count, block.block.degree);
  }
  std::vector<RingStep> steps;
  for (int32_t t = 0; t < count; ++t) {
    steps.push_back(BuildStep(micro_batch, maps, t));
  }
  return steps;
}

}  // namespace skrull::exec
