// Ways to build a whole state from nothing.
//
// Each is deterministic and heuristic: none is best on every batch, so the
// optimizer keeps the best of several.
#ifndef SKRULL_SERVER_PLANNER_OPTIMIZER_CONSTRUCT_H_
#define SKRULL_SERVER_PLANNER_OPTIMIZER_CONSTRUCT_H_

#include <cstdint>
#include <span>

#include "skrull/planner/optimizer/search_state.h"

namespace skrull {

struct LongestFirstOptions {
  int32_t micro_batches = 1;
  // Seconds a slot should take in each micro-batch, overhead left out, > 0.
  double slot_seconds = 0;
  // A sequence takes the smallest degree that keeps its slots within
  // slot_seconds * stretch. Low values shard more, high values less.
  double stretch = 1;
};

// Longest sequence first, each on the smallest block that keeps the block's
// slowest slot within the micro-batch's target; where no block does, on the one
// that exceeds it least. The targets of other micro-batches then shrink by what
// that one grew, since the step lasts their sum: work gathers where a long
// sequence makes a micro-batch long anyway. `descending` is every sequence by
// falling length. False if some sequence found no room: the state is then
// unfinished.
bool ConstructLongestFirst(std::span<const int32_t> descending,
                           const LongestFirstOptions& options,
                           SearchState& state);

// Un-sharding from all-sharded: sequences are dealt over DP ranks by falling
// length and packed, sharded over their whole CP groups; then, shortest first,
// each becomes local to the least busy rank of its micro-batch for as long as
// no slot outlasts the slowest one there was. What is exchanged shrinks while
// compute stays balanced. Arguments and result as above.
bool ConstructUnsharded(std::span<const int32_t> descending,
                        int32_t micro_batches, SearchState& state);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_OPTIMIZER_CONSTRUCT_H_
