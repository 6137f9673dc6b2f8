#include "skrull/planner/plan.h"

#include <algorithm>

#include "skrull/planner/chunk_flow/finish_chunk_plan.h"
#include "skrull/planner/cost_model.h"
#include "skrull/planner/explain.h"
#include "skrull/planner/lower_bound.h"
#include "skrull/planner/pipeline/step_pipeline.h"

namespace skrull {

std::string BottleneckName(Bottleneck bottleneck) {
  switch (bottleneck) {
    case Bottleneck::kUnspecified:
      break;
    case Bottleneck::kWork:
      return "BOTTLENECK_WORK";
    case Bottleneck::kSequence:
      return "BOTTLENECK_SEQUENCE";
    case Bottleneck::kExchange:
      return "BOTTLENECK_EXCHANGE";
    case Bottleneck::kOverhead:
      return "BOTTLENECK_OVERHEAD";
    case Bottleneck::kPlacement:
      return "BOTTLENECK_PLACEMENT";
  }
  return "BOTTLENECK_UNSPECIFIED";
}

void FinishPlan(const Job& job, std::span<const int64_t> lengths, Plan* plan) {
  if (plan->chunk_plan) {
    FinishChunkPlan(job, lengths, plan);
    return;
  }
  const CostModel cost(job);
  StepClock clock(job, cost);
  StepPipeline pipeline(job);
  const int32_t stages = job.parallelism().pp_size;
  PlanSummary& summary = plan->summary;
  const int64_t roll_backs = summary.roll_back_count;
  summary = PlanSummary{};
  summary.roll_back_count = roll_backs;
  plan->blocks.clear();
  for (MicroBatchPlan& micro_batch : plan->micro_batches) {
    micro_batch.token_count = 0;
    for (const SequencePlacement& p : micro_batch.placements) {
      micro_batch.token_count += p.token_count;
      if (p.degree == 1) continue;
      ++summary.sharded_sequence_count;
      summary.sharded_token_count += p.token_count;
      if (plan->blocks.empty() || plan->blocks.back() != p.block()) {
        plan->blocks.push_back(p.block());
      }
    }
    const MicroBatchTime time = clock.Run(micro_batch.placements);
    if (stages > 1) pipeline.Add(clock.components());
    micro_batch.predicted_seconds = time.seconds;
    micro_batch.max_rank_tokens = time.max_rank_tokens;
    summary.max_rank_tokens =
        std::max(summary.max_rank_tokens, time.max_rank_tokens);
  }
  std::sort(plan->blocks.begin(), plan->blocks.end());
  plan->blocks.erase(std::unique(plan->blocks.begin(), plan->blocks.end()),
                     plan->blocks.end());
  summary.micro_batch_count = std::ssize(plan->micro_batches);
  summary.predicted_seconds = clock.seconds();
  const LowerBound bound = ComputeLowerBound(job, cost, lengths);
  summary.lower_bound_seconds =
      WithoutRounding(bound.seconds, summary.predicted_seconds);
  summary.dp_imbalance = clock.dp_imbalance();
  summary.rank_imbalance = clock.rank_imbalance();
  summary.explanation =
      Explain(job, cost, lengths, *plan, bound, clock.last_rank());
  if (stages > 1) {
    const PipelineTime time = pipeline.Run();
    summary.pipeline_seconds = time.makespan_seconds;
    summary.pipeline_bubble = time.Bubble(job.pool().dp_size, stages);
  }
}

RankPlan MakeRankPlan(const Plan& plan, const std::string& digest,
                      int32_t rank) {
  RankPlan out{.job = plan.key.job,
               .step = plan.key.step,
               .attempt = plan.key.attempt,
               .digest = digest,
               .rank = rank,
               .micro_batches = {},
               .blocks = plan.blocks,
               .batch_token_count = 0,
               .predicted_seconds = plan.summary.predicted_seconds,
               .chunk_plan = {}};
  for (const MicroBatchPlan& micro_batch : plan.micro_batches) {
    out.batch_token_count += micro_batch.token_count;
  }
  if (plan.chunk_plan) {
    for (const Chunk& chunk : plan.chunk_plan->chunks) {
      out.batch_token_count += chunk.token_count;
    }
    out.chunk_plan =
        MakeRankChunkPlan(*plan.chunk_plan, rank, out.batch_token_count);
  }
  for (const MicroBatchPlan& micro_batch : plan.micro_batches) {
    RankMicroBatch share{.segments = RankSegments(micro_batch.placements, rank),
                         .token_count = micro_batch.token_count};
    for (const RankSegment& segment : share.segments) {
      share.row_count += segment.rows();
    }
    share.token_weight = static_cast<double>(share.row_count) /
                         static_cast<double>(out.batch_token_count);
    out.micro_batches.push_back(std::move(share));
  }
  return out;
}

}  // namespace skrull
