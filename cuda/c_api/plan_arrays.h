// The arrays of both kinds of rank plans, read and filled.
#ifndef SKRULL_CUDA_C_API_PLAN_ARRAYS_H_
#define SKRULL_CUDA_C_API_PLAN_ARRAYS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "skrull/cuda/c_api/call.h"
#include "skrull/cuda/c_api/skrull_exec.h"
#include "skrull/cuda/status.h"
#include "skrull/planner/layout.h"

namespace skrull::exec::c_api {

// More than any pool has (the planner's limit).
inline constexpr int32_t kMaxRanks = 1 << 20;
// More micro-batches, chunks or operations than any plan has.
inline constexpr int32_t kMaxItems = 64 << 20;

// Errors of all below: INVALID_ARGUMENT naming the field, or the index in it.

Status CheckRange(const char* name, int64_t value, int64_t least, int64_t most);
Status CheckRank(int32_t rank, int32_t ranks);

// REQUIRES: offsets has count + 1 entries, unless it is null.
Status CheckOffsets(const int64_t* offsets, int32_t count,
                    const skrull_segment* segments);

// REQUIRES: blocks has 2 * count entries, unless it is null; ranks passes
// CheckRank.
Result<std::vector<Block>> ReadBlocks(const int32_t* blocks, int32_t count,
                                      int32_t ranks);

// segments[begin .. end): on ranks of the pool, with ranges inside their
// sequences, so that maps can be built of them.
Result<std::vector<RankSegment>> ReadSegments(const skrull_segment* segments,
                                              int64_t begin, int64_t end,
                                              int32_t ranks);

// Copies `values` to a caller's array of `count` entries.
template <class Values>
Status CopyOut(const Values& values, int32_t* to, int64_t count) {
  const auto size = static_cast<int64_t>(values.size());
  if (count != size) {
    return InvalidArgument("count is " + std::to_string(count) +
                           ", where there are " + std::to_string(size));
  }
  if (size > 0) SKRULL_EXEC_RETURN_IF_ERROR(NotNull(to, "the array"));
  std::copy(values.begin(), values.end(), to);
  return {};
}

}  // namespace skrull::exec::c_api

#endif  // SKRULL_CUDA_C_API_PLAN_ARRAYS_H_
