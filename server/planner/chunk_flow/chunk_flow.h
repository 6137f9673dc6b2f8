// POLICY_CHUNK_FLOW: ChunkFlow, arXiv 2503.02356.
//
// Sequences longer than a chunk are split into dependent chunks of chunk_size
// tokens, the rest last; the others are packed whole into as few chunks as
// possible. All chunks of a sequence go to one DP rank; DP ranks are balanced
// by predicted seconds, longest first. A DP rank runs its groups (the chunks of
// one sequence, or one packed chunk) one after the other in the
// paper's state-aware order (chunk_schedule.h).
// Pure; safe from any thread.
#ifndef SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHUNK_FLOW_H_
#define SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHUNK_FLOW_H_

#include <cstdint>
#include <optional>
#include <span>

#include "skrull/planner/chunk_plan.h"
#include "skrull/planner/job.h"

namespace skrull {

// Chunks and schedules of the batch, figures unset; nullopt if that takes more
// than `max_chunks`. With pp_size > 1 each DP rank runs its groups in
// descending or ascending order of their seconds, whichever ends earlier in the
// pipeline. REQUIRES: memory holds each length (CheckBatch); with pp_size > 1,
// max_chunks * pp_size <= kMaxStagePasses. O(K log K + chunks * pp_size), and
// the search of PackFewest.
std::optional<ChunkPlan> RunChunkFlow(const Job& job,
                                      std::span<const int64_t> lengths,
                                      int64_t max_chunks);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHUNK_FLOW_H_
