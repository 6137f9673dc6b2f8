// How full a plan makes each rank, for people to look at.
#ifndef SKRULL_SERVER_STATUS_RANK_LOAD_H_
#define SKRULL_SERVER_STATUS_RANK_LOAD_H_

#include <cstdint>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull {

// For each of the first `max_ranks` ranks of the pool, the rows of its fullest
// micro-batch (or chunk) over the job's bucket: 0 for a rank without work, 1
// for one that is full. REQUIRES: the plan is legal for the job. Pure.
// O(placements + blocks * max_ranks).
std::vector<float> RankLoads(const Job& job, const Plan& plan,
                             int32_t max_ranks);

}  // namespace skrull

#endif  // SKRULL_SERVER_STATUS_RANK_LOAD_H_
