// The one meaning of a placement: blocks of ranks, zigzag rows, cu_seqlens.
//
// Planner, checker, clients and executor all call these functions, so that a
// plan means the same everywhere. The integer functions compile for GPUs too.
// This header depends on nothing but the standard library.
//
// All functions are pure and safe to call from any thread.
#ifndef SKRULL_SERVER_PLANNER_LAYOUT_H_
#define SKRULL_SERVER_PLANNER_LAYOUT_H_

#include <cstdint>
#include <span>
#include <vector>

#if defined(__CUDACC__)
#define SKRULL_HOST_DEVICE __host__ __device__
#else
#define SKRULL_HOST_DEVICE
#endif

namespace skrull {

// The run of ranks [first_rank, first_rank + degree).
struct Block {
  int32_t first_rank = 0;
  int32_t degree = 1;

  friend bool operator==(const Block&, const Block&) = default;
  friend auto operator<=>(const Block&, const Block&) = default;
};

// Which blocks a sequence may be sharded over.
enum class BlockScope : int8_t {
  kGroup,     // one rank, or one whole CP group
  kSubgroup,  // also power-of-two blocks in a group, aligned to their size
  kPool,      // also aligned runs of 2^k whole groups, and the whole pool
};

// dp_size * cp_size ranks; rank = dp_rank * cp_size + cp_rank.
struct PoolShape {
  int32_t dp_size = 1;
  int32_t cp_size = 1;

  SKRULL_HOST_DEVICE constexpr int32_t ranks() const {
    return dp_size * cp_size;
  }
};

// A half-open range of token positions of one sequence.
struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;

  SKRULL_HOST_DEVICE constexpr int64_t size() const { return end - begin; }
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// The two chunks of a sequence that one rank of its block holds.
struct ZigzagShard {
  TokenRange low;
  TokenRange high;

  SKRULL_HOST_DEVICE constexpr int64_t rows() const {
    return low.size() + high.size();
  }
};

// ---------------------------------------------------------------------------
// Zigzag shards.
//
// A block of g ranks cuts a sequence of S tokens into 2g chunks; its r-th rank
// holds chunks r (low) and 2g-1-r (high). Every rank holds S div g tokens, and
// the S mod g ranks from `rotation` on, cyclically, hold one more. `rotation`
// starts at 0 for each (micro-batch, block) and runs over the block's sequences
// in placement order, so that over all of them, too, ranks differ by at most
// one row.
//
// REQUIRES for all: degree >= 1, 0 <= rotation < degree, 0 <= rank_in_block <
// degree, token_count >= 0.

// Rows of the rank. O(1).
SKRULL_HOST_DEVICE constexpr int64_t ShardRows(int64_t token_count,
                                               int32_t degree, int32_t rotation,
                                               int32_t rank_in_block) {
  const int64_t extra = token_count % degree;
  const int64_t turn = (rank_in_block - rotation + degree) % degree;
  return token_count / degree + (turn < extra ? 1 : 0);
}

// The rotation for the block's next sequence. O(1).
SKRULL_HOST_DEVICE constexpr int32_t NextRotation(int64_t token_count,
                                                  int32_t degree,
                                                  int32_t rotation) {
  return static_cast<int32_t>((rotation + token_count % degree) % degree);
}

// Rows of the rank over all sequences of a block that hold `token_count` tokens
// together: what ShardRows sums to, whatever the lengths and their order. O(1).
SKRULL_HOST_DEVICE constexpr int64_t BlockRows(int64_t token_count,
                                               int32_t degree,
                                               int32_t rank_in_block) {
  return ShardRows(token_count, degree, 0, rank_in_block);
}

// Rows of the fullest rank of such a block. O(1).
SKRULL_HOST_DEVICE constexpr int64_t MaxBlockRows(int64_t token_count,
                                                  int32_t degree) {
  return token_count / degree + (token_count % degree != 0 ? 1 : 0);
}

namespace layout_internal {

// How many of ranks [0, rank) hold an extra token: the size of
// [0, rank) intersected with the cyclic run [rotation, rotation + extra).
SKRULL_HOST_DEVICE constexpr int64_t ExtrasBefore(int64_t rank, int64_t degree,
                                                  int64_t rotation,
                                                  int64_t extra) {
  const int64_t end = rotation + extra;
  int64_t count = 0;
  if (rank > rotation) count += (rank < end ? rank : end) - rotation;
  const int64_t wrapped = end - degree;  // the run covers [0, wrapped) as well
  if (wrapped > 0) count += rank < wrapped ? rank : wrapped;
  return count;
}

// Tokens in the low (first) chunks of ranks [0, rank).
SKRULL_HOST_DEVICE constexpr int64_t LowTokensBefore(int64_t rank,
                                                     int64_t token_count,
                                                     int64_t degree,
                                                     int64_t rotation) {
  const int64_t each = token_count / degree;
  // floor((each + 1) / 2) exceeds floor(each / 2) only when `each` is odd.
  const int64_t extras =
      each % 2 == 1 ? ExtrasBefore(rank, degree, rotation, token_count % degree)
                    : 0;
  return rank * (each / 2) + extras;
}

}  // namespace layout_internal

// The two ranges of the rank; low.rows + high.rows == ShardRows. The chunks of
// all ranks tile [0, token_count). With degree 1 low holds the first half and
// high the rest. Either may be empty (token_count < 2 * degree). O(1).
SKRULL_HOST_DEVICE constexpr ZigzagShard Shard(int64_t token_count,
                                               int32_t degree, int32_t rotation,
                                               int32_t rank_in_block) {
  const int64_t each = token_count / degree;
  const int64_t extra = token_count % degree;
  const auto low_end = [&](int64_t rank) {
    return layout_internal::LowTokensBefore(rank, token_count, degree,
                                            rotation);
  };
  // High chunks lie in descending rank order: the one of rank r begins where
  // the high chunks of ranks [0, r] are still to come.
  const auto high_begin = [&](int64_t ranks) {
    const int64_t rows = ranks * each + layout_internal::ExtrasBefore(
                                            ranks, degree, rotation, extra);
    return token_count - (rows - low_end(ranks));
  };
  const int64_t r = rank_in_block;
  return {.low = {low_end(r), low_end(r + 1)},
          .high = {high_begin(r + 1), high_begin(r)}};
}

// ---------------------------------------------------------------------------
// Blocks.

// True if a sequence may be placed on `block`. Never fails: a block outside the
// pool is not allowed. O(1).
bool IsAllowedBlock(BlockScope scope, PoolShape pool, Block block);

// All degrees of allowed blocks, ascending, the first being 1. At most
// log2(cp_size) + log2(dp_size) + 4 of them.
std::vector<int32_t> AllowedDegrees(BlockScope scope, PoolShape pool);

// All allowed blocks of `degree`, by first_rank; empty if the degree is not
// allowed. REQUIRES: degree >= 1.
std::vector<Block> AllowedBlocks(BlockScope scope, PoolShape pool,
                                 int32_t degree);

// ---------------------------------------------------------------------------
// Rows of a rank.

// One sequence on one block, as a plan lists it.
struct SequencePlacement {
  int32_t sequence = 0;     // index in the global batch
  int32_t token_count = 0;  // its length, tokens
  int32_t first_rank = 0;
  int32_t degree = 1;  // 1 = local, more = sharded

  Block block() const { return {first_rank, degree}; }
  friend bool operator==(const SequencePlacement&,
                         const SequencePlacement&) = default;
};

// The part of one sequence that a rank holds. Local: `low` is the whole
// sequence and `high` is empty.
struct RankSegment {
  int32_t sequence = 0;
  int32_t token_count = 0;  // of the whole sequence
  Block block;
  TokenRange low;
  TokenRange high;

  bool is_local() const { return block.degree == 1; }
  int64_t rows() const { return low.size() + high.size(); }
  friend bool operator==(const RankSegment&, const RankSegment&) = default;
};

// The rank's segments of one micro-batch in row order: local sequences in
// placement order, then sharded ones in placement order (low chunk, then high
// chunk). Sharded sequences appear on every rank of their block, also where
// that rank holds none of their tokens, since it takes part in the exchange.
// O(placements + blocks).
std::vector<RankSegment> RankSegments(
    std::span<const SequencePlacement> placements, int32_t rank);

// Cumulative row offsets of attention segments, [num_segments + 1], starting at
// 0: one entry a local sequence, two a sharded one (low, high); empty chunks
// have no segment. REQUIRES: the rank's rows fit int32, which a bucket size
// below 2^31 ensures.
std::vector<int32_t> CuSeqlens(std::span<const RankSegment> segments);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_LAYOUT_H_
