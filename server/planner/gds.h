// GDS, Alg. 2 of the Skrull paper: a global batch over DP ranks and
// micro-batches, each micro-batch placed by DACP (dacp.h).
//
// Deliberate differences from the listing (docs/algorithms.md):
//  - a micro-batch may fill its group exactly (the listing's `>=` refuses it,
//    and then does not end);
//  - the loop ends on success, and at one sequence a micro-batch at the latest,
//    so a batch whose sequences can each be placed alone is always scheduled;
//  - where the strided split fails at some count, a first-fit-decreasing split
//    of that count is tried before the count grows;
//  - sequences that no CP group holds take larger blocks (BLOCK_SCOPE_POOL).
//
// Without roll-back a micro-batch that DACP runs out of memory on is kept, and
// the schedule says so: to try more micro-batches then would be the recovery
// that is left out.
#ifndef SKRULL_SERVER_PLANNER_GDS_H_
#define SKRULL_SERVER_PLANNER_GDS_H_

#include <cstdint>
#include <optional>
#include <span>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/dacp.h"
#include "skrull/planner/heuristic_schedule.h"
#include "skrull/planner/job.h"

namespace skrull {

using GdsResult = HeuristicSchedule;

// Schedules the batch; nullopt if a DP rank would need more than
// `max_micro_batches`. REQUIRES: each length is in 1 .. job.longest_sequence().
// O(K log K) without gathered K/V. With it, DACP can refuse a split, and O(K
// log ranks) is spent on each of O(log K) counts.
std::optional<GdsResult> RunGds(const Job& job, const CostModel& cost,
                                std::span<const int64_t> lengths,
                                int64_t max_micro_batches,
                                const DacpOptions& options = {});

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_GDS_H_
