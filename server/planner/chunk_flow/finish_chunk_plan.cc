#include "skrull/planner/chunk_flow/finish_chunk_plan.h"

#include <algorithm>
#include <vector>

#include "skrull/planner/chunk_flow/chunk_cost.h"
#include "skrull/planner/chunk_flow/chunk_schedule.h"
#include "skrull/planner/cost_model.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/lower_bound.h"
#include "skrull/planner/pipeline/simulator.h"

namespace skrull {
namespace {

// Figures of what DP ranks do, one after the other.
class Finisher {
 public:
  Finisher(const Job& job, const CostModel& cost, ChunkPlan* plan)
      : job_(job), chunk_cost_(job, cost), plan_(*plan) {}

  void FinishChunks() {
    for (Chunk& chunk : plan_.chunks) {
      chunk.token_count = 0;
      for (const ChunkPiece& piece : chunk.pieces) {
        chunk.token_count += piece.range.size();
      }
      compute_.push_back(chunk_cost_.ComputeSeconds(chunk));
      chunk.predicted_seconds = chunk_cost_.ChunkSeconds(
          compute_.back(), chunk.dp_rank, chunk.token_count);
    }
  }

  void FinishSchedule(ChunkSchedule* schedule) {
    double compute = 0;
    max_rows_ = std::max(max_rows_, MostKeptRows(plan_, *schedule));
    schedule->predicted_seconds = 0;
    for (const ChunkOperation& operation : schedule->operations) {
      const auto index = static_cast<size_t>(operation.chunk);
      const Chunk& chunk = plan_.chunks[index];
      if (operation.pass == ChunkPass::kBackward) continue;
      if (operation.pass == ChunkPass::kRecompute) {
        schedule->predicted_seconds +=
            chunk_cost_.RecomputeSeconds(compute_[index]);
        compute += compute_[index] * chunk_cost_.forward_share();
      } else {
        schedule->predicted_seconds +=
            job_.cost().seconds_per_micro_batch + chunk.predicted_seconds;
        compute += compute_[index];
      }
    }
    compute_seconds_.push_back(compute);
    seconds_.push_back(schedule->predicted_seconds);
    if (job_.parallelism().pp_size == 1) return;
    const PipelineTime time = TimeInPipeline(job_, chunk_cost_, plan_.chunks,
                                             schedule->operations, &scratch_);
    pipeline_.makespan_seconds =
        std::max(pipeline_.makespan_seconds, time.makespan_seconds);
    pipeline_.busy_seconds += time.busy_seconds;
  }

  void FinishSummary(PlanSummary* summary) const {
    summary->max_rank_tokens = max_rows_;
    summary->predicted_seconds =
        *std::max_element(seconds_.begin(), seconds_.end());
    summary->dp_imbalance = Imbalance(seconds_);
    summary->rank_imbalance = Imbalance(compute_seconds_);
    summary->pipeline_seconds = pipeline_.makespan_seconds;
    summary->pipeline_bubble =
        pipeline_.Bubble(job_.pool().dp_size, job_.parallelism().pp_size);
  }

 private:
  const Job& job_;
  const ChunkCost chunk_cost_;
  ChunkPlan& plan_;
  std::vector<double> compute_;          // per chunk
  std::vector<double> seconds_;          // per DP rank
  std::vector<double> compute_seconds_;  // per DP rank
  int64_t max_rows_ = 0;
  PipelineTime pipeline_;
  std::vector<int32_t> scratch_;
};

}  // namespace

int64_t MostKeptRows(const ChunkPlan& plan, const ChunkSchedule& schedule) {
  int64_t most = 0;
  int64_t rows = 0;
  for (const ChunkOperation& operation : schedule.operations) {
    const Chunk& chunk = plan.chunks[static_cast<size_t>(operation.chunk)];
    // Rotations start anew in each chunk: the group's first rank is fullest.
    const int64_t own = MaxBlockRows(chunk.token_count, plan.cp_size);
    if (operation.pass == ChunkPass::kBackward) {
      rows -= own;
      continue;
    }
    most = std::max(most, rows + own);
    if (operation.pass != ChunkPass::kForwardDiscard) rows += own;
  }
  return most;
}

void FinishChunkPlan(const Job& job, std::span<const int64_t> lengths,
                     Plan* plan) {
  const CostModel cost(job);
  ChunkPlan& chunks = *plan->chunk_plan;
  plan->summary = PlanSummary{};
  plan->blocks.clear();
  Finisher finisher(job, cost, &chunks);
  finisher.FinishChunks();
  const int32_t cp_size = job.pool().cp_size;
  for (ChunkSchedule& schedule : chunks.schedules) {
    finisher.FinishSchedule(&schedule);
    if (cp_size > 1 && !schedule.operations.empty()) {
      plan->blocks.push_back({schedule.dp_rank * cp_size, cp_size});
    }
  }
  finisher.FinishSummary(&plan->summary);
  plan->summary.lower_bound_seconds = WithoutRounding(
      ChunkPlanLowerBound(job, cost, lengths), plan->summary.predicted_seconds);
  if (cp_size == 1) return;
  plan->summary.sharded_sequence_count = std::ssize(lengths);
  for (const int64_t length : lengths) {
    plan->summary.sharded_token_count += length;
  }
}

}  // namespace skrull
