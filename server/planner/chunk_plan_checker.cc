#include "skrull/planner/chunk_plan_checker.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "skrull/planner/checker_status.h"
#include "skrull/planner/chunk_coverage_checker.h"
#include "skrull/planner/chunk_flow/chunk_cost.h"
#include "skrull/planner/chunk_replay_checker.h"
#include "skrull/planner/cost_model.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/pipeline_checker.h"
#include "skrull/planner/planner.h"

namespace skrull {
namespace {

using checker::Broken;
using checker::NearlyEqual;
using checker::WrongCount;
using checker::WrongReal;

double Imbalance(const std::vector<double>& values) {
  double sum = 0;
  double most = 0;
  for (const double value : values) {
    sum += value;
    most = std::max(most, value);
  }
  return sum > 0 ? most * static_cast<double>(values.size()) / sum - 1 : 0;
}

// One check of one plan: its shape, its chunks, its schedules, its summary.
class ChunkCheck {
 public:
  ChunkCheck(const Job& job, std::span<const int64_t> lengths, const Plan& plan)
      : job_(job),
        pool_(job.pool()),
        lengths_(lengths),
        summary_(plan.summary),
        blocks_(plan.blocks),
        plan_(*plan.chunk_plan),
        cost_(job),
        chunk_cost_(job, cost_) {}

  absl::Status Run() {
    if (absl::Status s = CheckShape(); !s.ok()) return s;
    compute_.reserve(plan_.chunks.size());
    for (size_t i = 0; i < plan_.chunks.size(); ++i) {
      if (absl::Status s = CheckChunk(i); !s.ok()) return s;
    }
    absl::StatusOr<std::vector<ChunkLinks>> links =
        CheckChunkCoverage(lengths_, plan_);
    if (!links.ok()) return links.status();
    ChunkReplay replay(job_, plan_, *std::move(links));
    slot_.assign(plan_.chunks.size(), 0);
    for (const ChunkSchedule& schedule : plan_.schedules) {
      if (absl::Status s = CheckSchedule(schedule, &replay); !s.ok()) return s;
    }
    for (size_t i = 0; i < plan_.chunks.size(); ++i) {
      if (replay.IsDone(i)) continue;
      return Broken("schedule", Name(i),
                    "its DP rank's schedule does not run it backward");
    }
    max_load_ = replay.max_load();
    return CheckSummary();
  }

 private:
  absl::Status CheckShape() const {
    const auto count = static_cast<int64_t>(plan_.chunks.size());
    const int64_t stages = job_.parallelism().pp_size;
    if (count > kMaxChunks ||
        (stages > 1 && count > kMaxStagePasses / stages)) {
      return Broken("chunks", "plan", absl::StrCat(count, " are too many"));
    }
    if (job_.parallelism().uniform_micro_batch_count) {
      return Broken("chunks", "plan", "the job is uniform");
    }
    const struct {
      const char* field;
      int64_t in_plan;
      int64_t wanted;
    } fields[] = {
        {"cp_size", plan_.cp_size, pool_.cp_size},
        {"retained_chunks", plan_.retained_chunks,
         job_.chunk_flow().retained_chunks},
        {"chunk_size_tokens", plan_.chunk_size_tokens,
         job_.chunk_flow().chunk_size_tokens.value_or(plan_.chunk_size_tokens)},
        {"number of schedules", static_cast<int64_t>(plan_.schedules.size()),
         pool_.dp_size},
    };
    for (const auto& f : fields) {
      if (f.in_plan == f.wanted) continue;
      return Broken(
          "chunks", "plan",
          absl::StrCat(f.field, " is ", f.in_plan, ", the job's ", f.wanted));
    }
    return absl::OkStatus();
  }

  static std::string Name(size_t chunk) {
    return absl::StrCat("chunk ", chunk);
  }

  absl::Status CheckChunk(size_t index) {
    const Chunk& chunk = plan_.chunks[index];
    if (chunk.dp_rank < 0 || chunk.dp_rank >= pool_.dp_size) {
      return Broken("chunks", Name(index),
                    absl::StrCat("dp_rank is ", chunk.dp_rank));
    }
    if (chunk.group_size < 1 || chunk.group_index < 0 ||
        chunk.group_index >= chunk.group_size) {
      return Broken("chunks", Name(index),
                    absl::StrCat("it is number ", chunk.group_index, " of ",
                                 chunk.group_size));
    }
    const auto pieces = static_cast<int64_t>(chunk.pieces.size());
    if (pieces == 0 || pieces > job_.max_sequences_per_micro_batch() ||
        (chunk.group_size > 1 && pieces > 1)) {
      return Broken("chunks", Name(index),
                    absl::StrCat("it has ", pieces, " pieces"));
    }
    int64_t tokens = 0;
    for (const ChunkPiece& piece : chunk.pieces) {
      if (absl::Status s = CheckPieceRange(lengths_, index, piece); !s.ok()) {
        return s;
      }
      tokens += piece.range.size();
    }
    if (tokens > plan_.chunk_size_tokens) {
      return Broken("chunks", Name(index),
                    absl::StrCat(tokens, " tokens > ", plan_.chunk_size_tokens,
                                 ", the chunk size"));
    }
    if (chunk.token_count != tokens) {
      return WrongCount(Name(index), "token_count", chunk.token_count, tokens);
    }
    compute_.push_back(chunk_cost_.ComputeSeconds(chunk));
    const double seconds =
        chunk_cost_.ChunkSeconds(compute_.back(), chunk.dp_rank, tokens);
    if (!NearlyEqual(chunk.predicted_seconds, seconds)) {
      return WrongReal(Name(index), "predicted_seconds",
                       chunk.predicted_seconds, seconds);
    }
    return absl::OkStatus();
  }

  absl::Status CheckSchedule(const ChunkSchedule& schedule,
                             ChunkReplay* replay) {
    const auto dp_rank = static_cast<int32_t>(seconds_.size());
    const std::string where = absl::StrCat("DP rank ", dp_rank);
    if (schedule.dp_rank != dp_rank) {
      return Broken("schedule", where,
                    absl::StrCat("dp_rank is ", schedule.dp_rank));
    }
    replay->BeginDpRank();
    double seconds = 0;
    double compute = 0;
    units_.clear();
    backward_order_.clear();
    for (size_t i = 0; i < schedule.operations.size(); ++i) {
      const ChunkOperation& operation = schedule.operations[i];
      const OperationName at{dp_rank, i, operation.chunk};
      const auto index = static_cast<size_t>(operation.chunk);
      if (operation.chunk < 0 || index >= plan_.chunks.size() ||
          plan_.chunks[index].dp_rank != dp_rank) {
        return Broken("schedule", at.Text(), "it is no chunk of this DP rank");
      }
      if (absl::Status s = replay->Step(at, operation.pass, index); !s.ok()) {
        return s;
      }
      if (operation.pass == ChunkPass::kBackward) {
        backward_order_.push_back(slot_[index]);
        continue;
      }
      const double full = job_.cost().seconds_per_micro_batch +
                          plan_.chunks[index].predicted_seconds;
      const double again = chunk_cost_.RecomputeSeconds(compute_[index]);
      const bool first = operation.pass != ChunkPass::kRecompute;
      seconds += first ? full : again;
      compute += compute_[index] * (first ? 1 : chunk_cost_.forward_share());
      if (job_.parallelism().pp_size == 1) continue;
      if (first) {
        slot_[index] = static_cast<int32_t>(units_.size());
        units_.push_back(
            {.forward = full * chunk_cost_.forward_share(),
             .backward = full * (1 - chunk_cost_.forward_share())});
      } else {
        units_[static_cast<size_t>(slot_[index])].backward += again;
      }
    }
    if (!NearlyEqual(schedule.predicted_seconds, seconds)) {
      return WrongReal(where, "predicted_seconds", schedule.predicted_seconds,
                       seconds);
    }
    seconds_.push_back(seconds);
    compute_seconds_.push_back(compute);
    // What is left undone is found when all schedules ran.
    if (job_.parallelism().pp_size == 1 ||
        backward_order_.size() != units_.size()) {
      return absl::OkStatus();
    }
    const PipelineFigures figures = TimePipeline(job_, units_, backward_order_);
    pipeline_.seconds = std::max(pipeline_.seconds, figures.seconds);
    pipeline_.busy += figures.busy;
    return absl::OkStatus();
  }

  absl::Status CheckSummary() const {
    size_t next = 0;
    for (size_t d = 0; d < plan_.schedules.size() && pool_.cp_size > 1; ++d) {
      if (plan_.schedules[d].operations.empty()) continue;
      const Block wanted{static_cast<int32_t>(d) * pool_.cp_size,
                         pool_.cp_size};
      if (next >= blocks_.size() || blocks_[next] != wanted) {
        return Broken("block list", absl::StrCat("entry ", next),
                      absl::StrCat("it is not the CP group of DP rank ", d));
      }
      ++next;
    }
    if (next != blocks_.size()) {
      return Broken("block list", absl::StrCat("entry ", next),
                    "no DP rank with chunks is left");
    }
    if (summary_.explanation) {
      return Broken("figures", "summary", "a plan of chunks explains nothing");
    }
    int64_t tokens = 0;
    for (const int64_t length : lengths_) tokens += length;
    const bool sharded = pool_.cp_size > 1;
    const struct {
      const char* field;
      int64_t in_plan;
      int64_t recomputed;
    } counts[] = {
        {"sharded_sequence_count", summary_.sharded_sequence_count,
         sharded ? static_cast<int64_t>(lengths_.size()) : 0},
        {"sharded_token_count", summary_.sharded_token_count,
         sharded ? tokens : 0},
        {"micro_batch_count", summary_.micro_batch_count, 0},
        {"max_rank_tokens", summary_.max_rank_tokens, max_load_},
        {"roll_back_count", summary_.roll_back_count, 0},
    };
    for (const auto& c : counts) {
      if (c.in_plan != c.recomputed) {
        return WrongCount("summary", c.field, c.in_plan, c.recomputed);
      }
    }
    const struct {
      const char* field;
      double in_plan;
      double recomputed;
      double offset;
    } reals[] = {
        {"predicted_seconds", summary_.predicted_seconds,
         *std::max_element(seconds_.begin(), seconds_.end()), 0},
        {"lower_bound_seconds", summary_.lower_bound_seconds,
         ChunkPlanLowerBound(job_, cost_, lengths_), 0},
        {"dp_imbalance", summary_.dp_imbalance, Imbalance(seconds_), 1},
        {"rank_imbalance", summary_.rank_imbalance, Imbalance(compute_seconds_),
         1},
        {"pipeline_seconds", summary_.pipeline_seconds, pipeline_.seconds, 0},
        {"pipeline_bubble", summary_.pipeline_bubble, pipeline_.Bubble(job_),
         1},
    };
    for (const auto& r : reals) {
      if (!NearlyEqual(r.in_plan + r.offset, r.recomputed + r.offset)) {
        return WrongReal("summary", r.field, r.in_plan, r.recomputed);
      }
    }
    return absl::OkStatus();
  }

  const Job& job_;
  const PoolShape pool_;
  const std::span<const int64_t> lengths_;
  const PlanSummary& summary_;
  const std::vector<Block>& blocks_;
  const ChunkPlan& plan_;
  const CostModel cost_;
  const ChunkCost chunk_cost_;

  // Per chunk.
  std::vector<double> compute_;
  std::vector<int32_t> slot_;  // in units_

  // Of the schedule under check.
  std::vector<PassSeconds> units_;
  std::vector<int32_t> backward_order_;

  // Of all schedules so far.
  int64_t max_load_ = 0;
  std::vector<double> seconds_;          // per DP rank
  std::vector<double> compute_seconds_;  // per DP rank
  PipelineFigures pipeline_;
};

}  // namespace

absl::Status CheckChunkPlan(const Job& job, std::span<const int64_t> lengths,
                            const Plan& plan) {
  if (plan.policy != Policy::kChunkFlow) {
    return Broken(
        "policy", "plan",
        absl::StrCat("a plan of ", PolicyName(plan.policy), " has chunks"));
  }
  if (!plan.chunk_plan || !plan.micro_batches.empty()) {
    return Broken("policy", "plan",
                  "a plan of POLICY_CHUNK_FLOW has chunks and no "
                  "micro-batches");
  }
  return ChunkCheck(job, lengths, plan).Run();
}

}  // namespace skrull
