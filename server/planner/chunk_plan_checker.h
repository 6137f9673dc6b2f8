// The checker's part for plans of POLICY_CHUNK_FLOW. Shares no code with what
// makes them: it knows the layout, the job and the cost model (chunk_cost.h).
#ifndef SKRULL_SERVER_PLANNER_CHUNK_PLAN_CHECKER_H_
#define SKRULL_SERVER_PLANNER_CHUNK_PLAN_CHECKER_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull {

// OK if `plan` is a legal plan of chunks of `lengths` for `job`:
//  - it names the job's shape: cp_size, retained_chunks, the chunk size where
//    the job states one, a schedule for each DP rank, no micro-batches;
//  - every token of every sequence is in exactly one chunk; a chunk holds whole
//    sequences, or one piece of a sequence whose pieces, in order, are the
//    chunks of one group on one DP rank; none exceeds the chunk size or the
//    sequence cap;
//  - each schedule runs its DP rank's chunks: forward once, after the chunk
//    before it in its group; backward once, after the chunk behind it, with
//    activations kept; recomputed once where they were discarded, and only
//    then;
//  - at no time are more than retained_chunks of a group kept, or more than
//    memory holds: rows of all chunks kept, and K/V of whole sequences from
//    their first forward pass to their last backward pass;
//  - all figures equal what is recomputed (seconds to 1e-9 relative).
// Otherwise FAILED_PRECONDITION, as CheckPlan. REQUIRES: lengths not empty,
// each in 1 .. kMaxTokens. O(pieces * log + operations * pp_size + dp_size).
// Any plan is safe input.
absl::Status CheckChunkPlan(const Job& job, std::span<const int64_t> lengths,
                            const Plan& plan);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_CHUNK_PLAN_CHECKER_H_
