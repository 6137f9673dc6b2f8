// Static context parallelism: what a trainer does that sizes CP for its longest
// sequence (DeepSpeed in the Skrull paper's comparison).
//
// Sequence k goes to DP rank k mod dp_size, as a distributed sampler deals
// them. Every sequence is sharded over its whole CP group; one that can only be
// held locally (gathered K/V too large) is local on the group's first rank, and
// one that no group holds takes a larger block where the scope has one.
#ifndef SKRULL_SERVER_PLANNER_BASELINES_STATIC_CP_H_
#define SKRULL_SERVER_PLANNER_BASELINES_STATIC_CP_H_

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull {

// One sequence a micro-batch. REQUIRES: each length is in
// 1 .. job.longest_sequence(). O(K log K).
std::vector<MicroBatchPlan> ScheduleStaticCp(const Job& job,
                                             std::span<const int64_t> lengths);

// Each DP rank packs its sequences in batch order: a micro-batch ends when the
// next sequence would break a memory rule. REQUIRES: as above. O(K log K).
std::vector<MicroBatchPlan> SchedulePackedStaticCp(
    const Job& job, std::span<const int64_t> lengths);

// Sorted batching (LongAlign in the paper's comparison): one sequence a
// micro-batch, over the batch in ascending order of length, equal ones in batch
// order, so that DP ranks run sequences of similar length together. REQUIRES:
// as above. O(K log K).
std::vector<MicroBatchPlan> ScheduleSortedStaticCp(
    const Job& job, std::span<const int64_t> lengths);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_BASELINES_STATIC_CP_H_
