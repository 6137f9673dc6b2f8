// DACP without GDS: the "+DACP" step of the Skrull paper's ablation.
//
// The trainer keeps its own order: sequence k goes to DP rank k mod dp_size, as
// a distributed sampler deals them, and each DP rank fills micro-batches in
// that order. DACP places each of those. One that no group holds takes a larger
// block where the scope has one.
#ifndef SKRULL_SERVER_PLANNER_BASELINES_DACP_ONLY_H_
#define SKRULL_SERVER_PLANNER_BASELINES_DACP_ONLY_H_

#include <cstdint>
#include <optional>
#include <span>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/dacp.h"
#include "skrull/planner/heuristic_schedule.h"
#include "skrull/planner/job.h"

namespace skrull {

// A micro-batch ends where the next sequence would exceed the group's tokens,
// bucket_size * cp_size, or the sequence cap; with roll-back, where gathered
// K/V makes DACP refuse it, at a sequence with which it does and without which
// it does not. Nullopt if a DP rank would need more than `max_micro_batches`.
// REQUIRES: each length is in 1 .. job.longest_sequence().
// O(K log K); with roll-back and gathered K/V O(K log^2 K).
std::optional<HeuristicSchedule> ScheduleDacpOnly(
    const Job& job, const CostModel& cost, std::span<const int64_t> lengths,
    int64_t max_micro_batches, const DacpOptions& options);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_BASELINES_DACP_ONLY_H_
