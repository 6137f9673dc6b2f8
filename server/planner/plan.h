// A plan, as plain immutable data: what skrull.v1.Plan says, without the
// digest, which is taken of its wire form (server/convert).
#ifndef SKRULL_SERVER_PLANNER_PLAN_H_
#define SKRULL_SERVER_PLANNER_PLAN_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skrull/planner/chunk_plan.h"
#include "skrull/planner/job.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/rank_plan.h"

namespace skrull {

// Micro-batch i of a plan; runs on every rank of the pool.
struct MicroBatchPlan {
  std::vector<SequencePlacement> placements;  // order fixes rows and rotations
  int64_t token_count = 0;
  double predicted_seconds = 0;  // overhead + slowest rank; 0 if nothing runs
  int64_t max_rank_tokens = 0;

  friend bool operator==(const MicroBatchPlan&,
                         const MicroBatchPlan&) = default;
};

// What keeps a step from being faster: skrull.v1.Bottleneck.
enum class Bottleneck : int8_t {
  kUnspecified,
  kWork,       // the batch's work: the pool is almost always busy
  kSequence,   // one sequence alone takes almost that long
  kExchange,   // exchange of one sequence, or of the long ones
  kOverhead,   // the micro-batches that memory asks for
  kPlacement,  // the plan: the batch allows a faster one
};

// "BOTTLENECK_WORK" for kWork, and so on: the name on the wire.
std::string BottleneckName(Bottleneck bottleneck);

// A change of the job that would lower the bound.
struct WhatIf {
  std::string field;  // path in JobSpec
  std::string value;
  double lower_bound_seconds = 0;

  friend bool operator==(const WhatIf&, const WhatIf&) = default;
};

// Why a step takes as long as it does: skrull.v1.Explanation.
struct Explanation {
  Bottleneck bottleneck = Bottleneck::kUnspecified;
  int32_t rank = 0;           // busy to the end; the lowest of those
  int32_t sequence = 0;       // takes most of that rank's time
  double sequence_share = 0;  // its share of predicted_seconds
  std::vector<WhatIf> what_ifs;
  std::string text;

  friend bool operator==(const Explanation&, const Explanation&) = default;
};

struct PlanSummary {
  double predicted_seconds = 0;
  double lower_bound_seconds = 0;
  int64_t roll_back_count = 0;
  int64_t sharded_sequence_count = 0;
  int64_t sharded_token_count = 0;
  int64_t micro_batch_count = 0;
  int64_t max_rank_tokens = 0;
  double dp_imbalance = 0;      // slowest DP rank's ready time / mean - 1
  double rank_imbalance = 0;    // busiest rank's compute seconds / mean - 1
  double pipeline_seconds = 0;  // through pp_size stages; 0 if pp_size is 1
  double pipeline_bubble = 0;   // share of that time the stages idle
  std::optional<Explanation> explanation;  // of plans of micro-batches

  friend bool operator==(const PlanSummary&, const PlanSummary&) = default;
};

// What a plan is made for.
struct PlanKey {
  std::string job;
  int64_t step = 0;
  int32_t attempt = 0;

  friend bool operator==(const PlanKey&, const PlanKey&) = default;
  friend auto operator<=>(const PlanKey&, const PlanKey&) = default;
};

struct Plan {
  PlanKey key;
  Policy policy = Policy::kSkrull;
  int64_t calibration_epoch = 0;
  std::vector<MicroBatchPlan> micro_batches;
  std::vector<Block> blocks;  // distinct, degree > 1, ascending
  PlanSummary summary;
  std::optional<ChunkPlan> chunk_plan;  // kChunkFlow only

  friend bool operator==(const Plan&, const Plan&) = default;
};

// Fills every field that follows from the placements: per micro-batch figures,
// `blocks`, and the summary with its explanation, but for roll_back_count,
// which it leaves alone; or, of a plan with chunks, every field that follows
// from their pieces and operations. REQUIRES: placements (or chunks) are legal
// for `job` and of lengths `lengths`; with pp_size > 1, micro-batches * dp_size
// * pp_size (or chunks * pp_size) <= kMaxStagePasses. O(placements + ranks *
// micro-batches), and that product.
void FinishPlan(const Job& job, std::span<const int64_t> lengths, Plan* plan);

// The rank's share of `plan`, whose digest is `digest`. REQUIRES: rank >= 0; a
// rank outside the pool has no segments. O(placements).
RankPlan MakeRankPlan(const Plan& plan, const std::string& digest,
                      int32_t rank);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_PLAN_H_
