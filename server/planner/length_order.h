// The one order of a batch's sequences by length.
#ifndef SKRULL_SERVER_PLANNER_LENGTH_ORDER_H_
#define SKRULL_SERVER_PLANNER_LENGTH_ORDER_H_

#include <cstdint>
#include <span>

namespace skrull {

// Compares indices into `lengths`: the shorter first, of equal ones the lower
// index. A strict total order, so that sorting by it is deterministic.
struct ShorterFirst {
  std::span<const int64_t> lengths;

  bool operator()(int32_t a, int32_t b) const {
    const int64_t x = lengths[static_cast<size_t>(a)];
    const int64_t y = lengths[static_cast<size_t>(b)];
    return x != y ? x < y : a < b;
  }
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_LENGTH_ORDER_H_
