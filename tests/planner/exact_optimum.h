// The best plan of a small batch in any scope, by branch and bound, and such
// batches.
#ifndef SKRULL_TESTS_PLANNER_EXACT_OPTIMUM_H_
#define SKRULL_TESTS_PLANNER_EXACT_OPTIMUM_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull::testing {

// The least predicted_seconds of any legal plan, if that is below `known` (the
// seconds of a plan at hand); else `known`. nullopt if more than `most_nodes`
// placements were tried before the search was over. REQUIRES: at most 8
// sequences on at most 8 ranks, each placeable; no link table (a table may dip,
// and then adding a sequence can make a micro-batch faster).
std::optional<double> ExactOptimum(const Job& job,
                                   std::span<const int64_t> lengths,
                                   double known, int64_t most_nodes);

// Four ranks in any shape and scope, under the costs of the paper's job, of the
// unit job or any others, without link tables.
JobSpec RandomFourRanks(Random& random);

// 1 to `most` lengths that the job can place: long-tailed ones, or all around
// one size.
std::vector<int64_t> FewLengths(Random& random, const Job& job, int64_t most);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_PLANNER_EXACT_OPTIMUM_H_
