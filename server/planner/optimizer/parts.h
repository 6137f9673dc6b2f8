// A large pool and its batch in parts that can be searched alone.
#ifndef SKRULL_SERVER_PLANNER_OPTIMIZER_PARTS_H_
#define SKRULL_SERVER_PLANNER_OPTIMIZER_PARTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/job.h"

namespace skrull {

// A run of DP ranks and the sequences dealt to it.
struct Part {
  int32_t first_dp_rank = 0;
  int32_t dp_ranks = 0;
  std::vector<int32_t> descending;  // sequences, by falling length
};

// Slots that one construction on `ranks` ranks looks at, about: every sequence
// is compared over micro-batches, and one that takes long beside an average
// slot over all blocks as well.
double ConstructionCost(const Job& job, const CostModel& cost,
                        std::span<const int64_t> lengths, int64_t ranks);

// Halves the pool into parts of equally many DP ranks while a construction on a
// part costs more than about a millisecond, a part keeps at least 32 ranks and
// has a block that holds the longest sequence; then deals the sequences,
// longest first, to the part with the least work. Time then grows with the
// batch, not with batch times pool. REQUIRES: lengths not empty. O(K log K).
std::vector<Part> SplitIntoParts(const Job& job, const CostModel& cost,
                                 std::span<const int64_t> lengths);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_OPTIMIZER_PARTS_H_
