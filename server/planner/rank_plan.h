// One rank's share of a plan: what a trainer executes. Plain data that depends
// on the layout alone, so that client and executor need no planner.
#ifndef SKRULL_SERVER_PLANNER_RANK_PLAN_H_
#define SKRULL_SERVER_PLANNER_RANK_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "skrull/planner/chunk_plan.h"
#include "skrull/planner/layout.h"

namespace skrull {

// A rank's share of one micro-batch. A rank with no segments still takes part
// in the step's model-wide collectives, with weight 0.
struct RankMicroBatch {
  std::vector<RankSegment> segments;  // in row order, see RankSegments()
  int64_t row_count = 0;              // rows of this rank, tokens
  int64_t token_count = 0;            // of the micro-batch, over all ranks
  double token_weight = 0;            // row_count / tokens of the whole batch

  friend bool operator==(const RankMicroBatch&,
                         const RankMicroBatch&) = default;
};

struct RankPlan {
  std::string job;
  int64_t step = 0;
  int32_t attempt = 0;
  // SHA-256 of the whole plan, lower-case hexadecimal. Ranks compare it before
  // the first collective of the step.
  std::string digest;
  int32_t rank = 0;
  // As many on every rank, in the same order.
  std::vector<RankMicroBatch> micro_batches;
  // Every communicator of the whole plan, in one order for all ranks.
  std::vector<Block> blocks;
  int64_t batch_token_count = 0;
  double predicted_seconds = 0;
  // POLICY_CHUNK_FLOW only; micro_batches is then empty.
  std::optional<RankChunkPlan> chunk_plan;

  friend bool operator==(const RankPlan&, const RankPlan&) = default;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_RANK_PLAN_H_
