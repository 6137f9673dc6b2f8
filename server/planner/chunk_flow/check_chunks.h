// What POLICY_CHUNK_FLOW refuses.
#ifndef SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHECK_CHUNKS_H_
#define SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHECK_CHUNKS_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "skrull/planner/job.h"

namespace skrull {

// OK if chunks can hold the batch. Errors:
//  - INVALID_ARGUMENT (kFieldInvalid, "parallelism.uniform_micro_batch_count")
//    for a uniform job: its DP ranks must run the same passes in the same
//    order, and their schedules differ;
//  - FAILED_PRECONDITION (kSequenceTooLong, "lengths") with every index that
//    memory cannot hold in chunks, its length, the limit, and what would hold
//    it.
// REQUIRES: lengths not empty, each in 1 .. kMaxTokens. O(K).
absl::Status CheckChunks(const Job& job, std::span<const int64_t> lengths);

// RESOURCE_EXHAUSTED (kLimitExceeded, "lengths"): the batch takes more chunks
// than `max_chunks`.
absl::Status TooManyChunks(const Job& job, int64_t max_chunks);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHECK_CHUNKS_H_
