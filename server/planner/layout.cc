#include "skrull/planner/layout.h"

#include <bit>
#include <map>

namespace skrull {
namespace {

bool IsPowerOfTwo(int32_t x) {
  return x > 0 && std::has_single_bit(static_cast<uint32_t>(x));
}

}  // namespace

bool IsAllowedBlock(BlockScope scope, PoolShape pool, Block block) {
  const int64_t first = block.first_rank;
  const int64_t degree = block.degree;
  const int64_t ranks = pool.ranks();
  if (degree < 1 || first < 0 || first + degree > ranks) return false;
  if (degree == 1) return true;
  const int64_t offset = first % pool.cp_size;
  if (degree == pool.cp_size && offset == 0) return true;
  if (scope == BlockScope::kGroup) return false;
  if (degree < pool.cp_size) {
    return IsPowerOfTwo(block.degree) && offset % degree == 0 &&
           offset + degree <= pool.cp_size;
  }
  if (scope == BlockScope::kSubgroup) return false;
  if (degree == ranks) return true;
  if (offset != 0 || degree % pool.cp_size != 0) return false;
  const auto groups = static_cast<int32_t>(degree / pool.cp_size);
  return IsPowerOfTwo(groups) && (first / pool.cp_size) % groups == 0;
}

std::vector<int32_t> AllowedDegrees(BlockScope scope, PoolShape pool) {
  std::vector<int32_t> degrees = {1};
  if (scope != BlockScope::kGroup) {
    for (int64_t d = 2; d < pool.cp_size; d *= 2) {
      degrees.push_back(static_cast<int32_t>(d));
    }
  }
  if (pool.cp_size > 1) degrees.push_back(pool.cp_size);
  if (scope == BlockScope::kPool && pool.dp_size > 1) {
    for (int64_t groups = 2; groups < pool.dp_size; groups *= 2) {
      degrees.push_back(static_cast<int32_t>(groups * pool.cp_size));
    }
    degrees.push_back(pool.ranks());
  }
  return degrees;
}

std::vector<Block> AllowedBlocks(BlockScope scope, PoolShape pool,
                                 int32_t degree) {
  // Allowed blocks start at a multiple of their degree, or of it within a
  // group.
  std::vector<Block> blocks;
  const int32_t span = degree < pool.cp_size ? pool.cp_size : pool.ranks();
  for (int64_t base = 0; base < pool.ranks(); base += span) {
    for (int64_t first = base; first + degree <= base + span; first += degree) {
      const Block block{static_cast<int32_t>(first), degree};
      if (IsAllowedBlock(scope, pool, block)) blocks.push_back(block);
    }
  }
  return blocks;
}

std::vector<RankSegment> RankSegments(
    std::span<const SequencePlacement> placements, int32_t rank) {
  std::vector<RankSegment> local;
  std::vector<RankSegment> sharded;
  std::map<Block, int32_t> rotations;
  for (const SequencePlacement& p : placements) {
    const int32_t rank_in_block = rank - p.first_rank;
    if (rank_in_block < 0 || rank_in_block >= p.degree) continue;
    RankSegment segment{.sequence = p.sequence,
                        .token_count = p.token_count,
                        .block = p.block(),
                        .low = {0, p.token_count},
                        .high = {p.token_count, p.token_count}};
    if (p.degree == 1) {
      local.push_back(segment);
      continue;
    }
    int32_t& rotation = rotations[p.block()];
    const ZigzagShard shard =
        Shard(p.token_count, p.degree, rotation, rank_in_block);
    segment.low = shard.low;
    segment.high = shard.high;
    sharded.push_back(segment);
    rotation = NextRotation(p.token_count, p.degree, rotation);
  }
  local.insert(local.end(), sharded.begin(), sharded.end());
  return local;
}

std::vector<int32_t> CuSeqlens(std::span<const RankSegment> segments) {
  std::vector<int32_t> offsets = {0};
  int64_t rows = 0;
  for (const RankSegment& segment : segments) {
    for (const TokenRange& range : {segment.low, segment.high}) {
      if (range.size() == 0) continue;
      rows += range.size();
      offsets.push_back(static_cast<int32_t>(rows));
    }
  }
  return offsets;
}

}  // namespace skrull
