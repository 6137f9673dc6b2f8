#include "skrull/cuda/c_api/plan_arrays.h"

#include <string>

namespace skrull::exec::c_api {
namespace {

// More segments than any kernel's grid has rows, and any plan holds.
constexpr int64_t kMaxSegments = int64_t{1} << 31;

bool IsBlock(int32_t first_rank, int32_t degree, int32_t ranks) {
  return first_rank >= 0 && degree >= 1 &&
         int64_t{first_rank} + degree <= ranks;
}

}  // namespace

Status CheckRange(const char* name, int64_t value, int64_t least,
                  int64_t most) {
  if (value >= least && value <= most) return {};
  return InvalidArgument("rank plan: " + std::string(name) + " is " +
                         std::to_string(value) + ", not in " +
                         std::to_string(least) + " .. " + std::to_string(most));
}

Status CheckRank(int32_t rank, int32_t ranks) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckRange("ranks", ranks, 1, kMaxRanks));
  return CheckRange("rank", rank, 0, int64_t{ranks} - 1);
}

Status CheckOffsets(const int64_t* offsets, int32_t count,
                    const skrull_segment* segments) {
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(offsets, "rank plan: segment_offsets"));
  int64_t before = 0;
  for (int32_t i = 0; i <= count; ++i) {
    const int64_t offset = offsets[i];
    if (offset < before || offset > kMaxSegments || (i == 0 && offset != 0)) {
      return InvalidArgument("rank plan: segment_offsets[" + std::to_string(i) +
                             "] is " + std::to_string(offset));
    }
    before = offset;
  }
  if (before == 0) return {};
  return NotNull(segments, "rank plan: segments");
}

Result<std::vector<Block>> ReadBlocks(const int32_t* blocks, int32_t count,
                                      int32_t ranks) {
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckRange("block_count", count, 0, int64_t{2} * ranks));
  if (count > 0) {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(blocks, "rank plan: blocks"));
  }
  std::vector<Block> read;
  for (int32_t i = 0; i < count; ++i) {
    read.push_back({blocks[2 * i], blocks[2 * i + 1]});
    if (!IsBlock(read.back().first_rank, read.back().degree, ranks)) {
      return InvalidArgument("rank plan: block " + std::to_string(i) +
                             " is no run of the pool's ranks");
    }
  }
  return read;
}

Result<std::vector<RankSegment>> ReadSegments(const skrull_segment* segments,
                                              int64_t begin, int64_t end,
                                              int32_t ranks) {
  std::vector<RankSegment> read;
  for (int64_t i = begin; i < end; ++i) {
    const skrull_segment& s = segments[i];
    if (!IsBlock(s.first_rank, s.degree, ranks)) {
      return InvalidArgument("segment " + std::to_string(i) + " is on ranks [" +
                             std::to_string(s.first_rank) + ", " +
                             std::to_string(int64_t{s.first_rank} + s.degree) +
                             "), not all in the pool");
    }
    for (const int64_t bound :
         {s.low_begin, s.low_end, s.high_begin, s.high_end}) {
      if (bound < 0 || bound > s.token_count) {
        return InvalidArgument("segment " + std::to_string(i) +
                               " ends at position " + std::to_string(bound) +
                               " of " + std::to_string(s.token_count));
      }
    }
    read.push_back({.sequence = s.sequence,
                    .token_count = s.token_count,
                    .block = {s.first_rank, s.degree},
                    .low = {s.low_begin, s.low_end},
                    .high = {s.high_begin, s.high_end}});
  }
  return read;
}

}  // namespace skrull::exec::c_api
