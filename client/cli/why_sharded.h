// Why a plan's sharded sequences are not local: what a local placement would
// have cost, or why there is none.
#ifndef SKRULL_CLIENT_CLI_WHY_SHARDED_H_
#define SKRULL_CLIENT_CLI_WHY_SHARDED_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull::cli {

enum class ShardReason : int8_t {
  kLength,  // no single rank holds it, even alone
  kRoom,    // no rank of its block has room for all of it in its micro-batch
  kTime,    // local, the step would take longer
  kPolicy,  // local, the step would take no longer: the policy shards it anyway
};

// "length" for kLength, and so on.
std::string ShardReasonName(ShardReason reason);

struct ShardedSequence {
  SequencePlacement placement;
  int32_t micro_batch = 0;
  double share_seconds = 0;     // what each rank of its block computes
  double exchange_seconds = 0;  // of its block, if the block held nothing else
  double local_seconds = 0;     // what one rank would compute
  ShardReason reason = ShardReason::kLength;
  // kTime and kPolicy: the rank of its block that would be done first with all
  // of it, everything else left where it is, and predicted_seconds then.
  int32_t local_rank = 0;
  double local_step_seconds = 0;
};

// The `limit` longest sharded sequences of the plan, longest first, ties by
// index. REQUIRES: the plan is legal for `job` and has micro-batches. Pure.
// O(limit * cost of evaluating the plan).
std::vector<ShardedSequence> WhySharded(const Job& job, const Plan& plan,
                                        size_t limit);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_WHY_SHARDED_H_
