// What chunks cost, in the terms of the cost model (docs/concepts.md,
// "Chunks"). Planner and checker both use it. Pure; safe from any thread.
#ifndef SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHUNK_COST_H_
#define SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHUNK_COST_H_

#include <cstdint>
#include <span>

#include "skrull/planner/chunk_plan.h"
#include "skrull/planner/cost_model.h"
#include "skrull/planner/job.h"

namespace skrull {

class ChunkCost {
 public:
  // `job` and `cost` must outlive it.
  ChunkCost(const Job& job, const CostModel& cost);

  // Compute of each rank for tokens [begin, end) of a sequence. With
  // efficiency_half_tokens 0 the pieces of a sequence sum to Comp() of the
  // whole. REQUIRES: 0 <= begin < end. O(1).
  double PieceSeconds(TokenRange range) const;

  // Of each rank, forward and backward. O(pieces).
  double ComputeSeconds(const Chunk& chunk) const;

  // Chunk::predicted_seconds of a chunk with that compute: with the exchange of
  // its own tokens in the CP group of its DP rank. REQUIRES: dp_rank is in the
  // pool. O(log table).
  double ChunkSeconds(double compute_seconds, int32_t dp_rank,
                      int64_t token_count) const;

  // What recomputing a chunk adds to its DP rank's schedule: the forward share
  // of its compute and of the overhead. Its K/V need not be exchanged again.
  double RecomputeSeconds(double compute_seconds) const {
    return (compute_seconds + job_.cost().seconds_per_micro_batch) *
           forward_share_;
  }

  // What one pass of a chunk with its predicted_seconds takes: the forward
  // share of those and of the overhead, the rest of both, or a recomputation.
  // Those of a schedule sum to its predicted_seconds. O(pieces).
  double PassSeconds(const Chunk& chunk, ChunkPass pass) const;

  // 1 / (1 + backward_forward_ratio).
  double forward_share() const { return forward_share_; }

  // A value no plan of chunks can beat. REQUIRES: lengths not empty. O(K).
  double LowerBoundSeconds(std::span<const int64_t> lengths) const;

 private:
  const Job& job_;
  const CostModel& cost_;
  const double forward_share_;
  const double unit_;         // seconds a FLOP of one pass takes a rank's share
  const double slow_tokens_;  // cp_size * efficiency_half_tokens
};

// PlanSummary::lower_bound_seconds of a plan of chunks: what neither chunks nor
// placements can beat; the chunks' bound where some sequence has no placement.
double ChunkPlanLowerBound(const Job& job, const CostModel& cost,
                           std::span<const int64_t> lengths);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHUNK_COST_H_
