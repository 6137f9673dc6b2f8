// The executor on several ranks of one machine against one dense call.
#ifndef SKRULL_CUDA_CHECK_VIRTUAL_RANKS_H_
#define SKRULL_CUDA_CHECK_VIRTUAL_RANKS_H_

#include <cstdint>
#include <vector>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/check/attention_sample.h"
#include "skrull/cuda/executor.h"
#include "skrull/cuda/profile/rank_pools.h"
#include "skrull/cuda/status.h"
#include "skrull/planner/layout.h"

namespace skrull::check {

// A mix for so many ranks: local sequences on each, one over every pair, and
// two over all, with lengths around `tokens` that divide nothing.
std::vector<SequencePlacement> MixedPlacements(int32_t ranks, int32_t tokens);

// Rows of all sequences one after another, and those of a rank among them.
int64_t CountRows(const std::vector<SequencePlacement>& placements);

// Each rank of the pool is a thread that runs its share of the micro-batch by
// an executor of its own, on a stream of its device; the outputs are put
// together again, row by row. Inputs have the sequences one after another, in
// the order of their numbers. Errors: the first of any rank.
exec::Result<AttentionOutputs> RunRanks(
    exec::AttentionBackend* backend, profile::RankPool* pool,
    const exec::AttentionProblem& problem, exec::Exchange exchange,
    const std::vector<SequencePlacement>& placements,
    const AttentionInputs& inputs);

}  // namespace skrull::check

#endif  // SKRULL_CUDA_CHECK_VIRTUAL_RANKS_H_
