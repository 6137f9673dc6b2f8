// Items into bins, as few bins as possible.
#ifndef SKRULL_SERVER_PLANNER_CHUNK_FLOW_BIN_PACKING_H_
#define SKRULL_SERVER_PLANNER_CHUNK_FLOW_BIN_PACKING_H_

#include <cstdint>
#include <span>
#include <vector>

namespace skrull {

// Packs items of `sizes` into bins that hold at most `capacity` together and at
// most `max_items` each. Bins hold indices of items, ascending; bins come in
// the order of their largest item.
//
// Best fit decreasing; where that needs more bins than a lower bound, and the
// items are few (kExactItems), a depth-first search for fewer, within a budget
// of steps. So the count is the least there is for all instances the search
// completes, which includes all of up to ten items, and at most 11/9 of it plus
// one for any other (best fit decreasing, without max_items).
// REQUIRES: 1 <= sizes <= capacity; max_items >= 1. O(n log n) and the budget.
std::vector<std::vector<int32_t>> PackFewest(std::span<const int64_t> sizes,
                                             int64_t capacity,
                                             int64_t max_items);

// Most items of an instance that is searched.
inline constexpr int64_t kExactItems = 64;

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_CHUNK_FLOW_BIN_PACKING_H_
