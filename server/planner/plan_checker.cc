#include "skrull/planner/plan_checker.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "skrull/planner/checker_status.h"
#include "skrull/planner/chunk_plan_checker.h"
#include "skrull/planner/cost_model.h"
#include "skrull/planner/explanation_checker.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/lower_bound.h"
#include "skrull/planner/pipeline_checker.h"
#include "skrull/planner/planner.h"

namespace skrull {
namespace {

using checker::Broken;
using checker::Digits;
using checker::NearlyEqual;
using checker::WrongCount;
using checker::WrongReal;

std::string BlockName(Block block) {
  return absl::StrCat("block {first_rank ", block.first_rank, ", degree ",
                      block.degree, "}");
}

absl::Status CheckLengths(std::span<const int64_t> lengths) {
  if (lengths.empty()) {
    return Broken("coverage", "batch", "it has no sequences to place");
  }
  for (size_t k = 0; k < lengths.size(); ++k) {
    if (lengths[k] < 1 || lengths[k] > kMaxTokens) {
      return Broken("coverage", absl::StrCat("sequence ", k),
                    absl::StrCat("the batch's length ", lengths[k],
                                 " is outside 1 .. ", kMaxTokens));
    }
  }
  return absl::OkStatus();
}

// One check of one plan: micro-batches in order, then what spans them.
class PlanCheck {
 public:
  PlanCheck(const Job& job, std::span<const int64_t> lengths, const Plan& plan)
      : job_(job),
        pool_(job.pool()),
        lengths_(lengths),
        plan_(plan),
        cost_(job),
        clock_(job, cost_),
        placed_(lengths.size(), false),
        load_(static_cast<size_t>(pool_.ranks())),
        gathered_(job.models_gather() ? load_.size() : 0) {}

  absl::Status Run() {
    if (absl::Status s = CheckStagePasses(); !s.ok()) return s;
    for (; micro_batch_ < plan_.micro_batches.size(); ++micro_batch_) {
      const MicroBatchPlan& mb = plan_.micro_batches[micro_batch_];
      if (absl::Status s = CheckPlacements(mb); !s.ok()) return s;
      if (absl::Status s = CheckSequenceCap(mb); !s.ok()) return s;
      if (absl::Status s = CheckMemory(); !s.ok()) return s;
      if (absl::Status s = CheckFigures(mb); !s.ok()) return s;
    }
    if (absl::Status s = CheckCoverage(); !s.ok()) return s;
    if (absl::Status s = CheckBlocks(); !s.ok()) return s;
    if (absl::Status s = CheckSummary(); !s.ok()) return s;
    return CheckPipeline();
  }

 private:
  // All tokens of one micro-batch on one block of degree > 1.
  struct BlockTotal {
    Block block;
    int64_t tokens = 0;
  };

  std::string MicroBatchName() const {
    return absl::StrCat("micro-batch ", micro_batch_);
  }

  // What bounds the cost of CheckPipeline.
  absl::Status CheckStagePasses() const {
    const int64_t stages = job_.parallelism().pp_size;
    const auto count = static_cast<int64_t>(plan_.micro_batches.size());
    if (stages == 1 || count <= kMaxStagePasses / (pool_.dp_size * stages)) {
      return absl::OkStatus();
    }
    return Broken(
        "pipeline", "plan",
        absl::StrCat(count, " micro-batches * dp_size ", pool_.dp_size,
                     " * pp_size ", stages, " > ", kMaxStagePasses));
  }

  // Each placement alone, and no sequence twice; fills load_ with local tokens
  // and totals_ with what is sharded.
  absl::Status CheckPlacements(const MicroBatchPlan& mb) {
    std::fill(load_.begin(), load_.end(), 0);
    totals_.clear();
    tokens_ = 0;
    for (size_t i = 0; i < mb.placements.size(); ++i) {
      const SequencePlacement& p = mb.placements[i];
      const auto where = [&] {
        return absl::StrCat(MicroBatchName(), ", placement ", i, ", sequence ",
                            p.sequence);
      };
      if (p.sequence < 0 ||
          static_cast<size_t>(p.sequence) >= lengths_.size()) {
        return Broken("coverage", where(),
                      absl::StrCat("the batch holds sequences 0 .. ",
                                   lengths_.size() - 1));
      }
      const auto sequence = static_cast<size_t>(p.sequence);
      if (placed_[sequence]) {
        return Broken("coverage", where(), "it is placed a second time");
      }
      placed_[sequence] = true;
      if (p.token_count != lengths_[sequence]) {
        return Broken(
            "coverage", where(),
            absl::StrCat("token_count is ", p.token_count,
                         ", the batch's length ", lengths_[sequence]));
      }
      if (!IsAllowedBlock(job_.parallelism().block_scope, pool_, p.block())) {
        return Broken(
            "blocks", where(),
            absl::StrCat("the job's scope does not allow ",
                         BlockName(p.block()), " in dp_size ", pool_.dp_size,
                         " x cp_size ", pool_.cp_size));
      }
      tokens_ += p.token_count;
      if (p.degree == 1) {
        load_[static_cast<size_t>(p.first_rank)] += p.token_count;
      } else {
        ++sharded_sequences_;
        sharded_tokens_ += p.token_count;
        totals_.push_back({p.block(), p.token_count});
      }
    }
    MergeTotals();
    return absl::OkStatus();
  }

  // One entry a block.
  void MergeTotals() {
    std::sort(totals_.begin(), totals_.end(),
              [](const BlockTotal& a, const BlockTotal& b) {
                return a.block < b.block;
              });
    size_t merged = 0;
    for (size_t i = 0; i < totals_.size(); ++i) {
      if (merged > 0 && totals_[merged - 1].block == totals_[i].block) {
        totals_[merged - 1].tokens += totals_[i].tokens;
      } else {
        totals_[merged++] = totals_[i];
      }
    }
    totals_.resize(merged);
    for (const BlockTotal& total : totals_) used_blocks_.push_back(total.block);
  }

  absl::Status CheckSequenceCap(const MicroBatchPlan& mb) {
    const int64_t cap = job_.max_sequences_per_micro_batch();
    if (static_cast<int64_t>(mb.placements.size()) <= cap) {
      return absl::OkStatus();
    }
    // change[d]: how many more sequences touch DP rank d than d - 1.
    std::vector<int64_t> change(static_cast<size_t>(pool_.dp_size) + 1, 0);
    for (const SequencePlacement& p : mb.placements) {
      const int32_t last_rank = p.first_rank + p.degree - 1;
      ++change[static_cast<size_t>(p.first_rank / pool_.cp_size)];
      --change[static_cast<size_t>(last_rank / pool_.cp_size) + 1];
    }
    int64_t count = 0;
    for (int32_t dp_rank = 0; dp_rank < pool_.dp_size; ++dp_rank) {
      count += change[static_cast<size_t>(dp_rank)];
      if (count > cap) {
        return Broken("sequence cap",
                      absl::StrCat(MicroBatchName(), ", DP rank ", dp_rank),
                      absl::StrCat(count, " sequences > ", cap,
                                   ", max_sequences_per_micro_batch"));
      }
    }
    return absl::OkStatus();
  }

  // Adds shards to load_ and holds every rank to the memory rules.
  absl::Status CheckMemory() {
    std::fill(gathered_.begin(), gathered_.end(), 0);
    for (const BlockTotal& total : totals_) {
      const auto first = static_cast<size_t>(total.block.first_rank);
      for (int32_t r = 0; r < total.block.degree; ++r) {
        const size_t rank = first + static_cast<size_t>(r);
        load_[rank] += BlockRows(total.tokens, total.block.degree, r);
        if (!gathered_.empty()) gathered_[rank] += total.tokens;
      }
    }
    max_load_ = 0;
    for (size_t rank = 0; rank < load_.size(); ++rank) {
      max_load_ = std::max(max_load_, load_[rank]);
      const int64_t gathered = gathered_.empty() ? 0 : gathered_[rank];
      if (!job_.FitsRank(load_[rank], gathered)) {
        return MemoryBroken(rank, gathered);
      }
    }
    return absl::OkStatus();
  }

  absl::Status MemoryBroken(size_t rank, int64_t gathered) const {
    const std::string where = absl::StrCat(MicroBatchName(), ", rank ", rank);
    if (load_[rank] > job_.bucket_size()) {
      return Broken("memory", where,
                    absl::StrCat(load_[rank], " tokens > ", job_.bucket_size(),
                                 ", the bucket size"));
    }
    return Broken(
        "memory", where,
        absl::StrCat(load_[rank], " tokens * ", Digits(job_.bytes_per_token()),
                     " bytes + ", gathered, " gathered tokens * ",
                     Digits(job_.gather_bytes_per_token()), " bytes > ",
                     Digits(job_.byte_budget()), ", the byte budget"));
  }

  absl::Status CheckFigures(const MicroBatchPlan& mb) {
    const MicroBatchTime time = clock_.Run(mb.placements);
    if (job_.parallelism().pp_size > 1) {
      components_.emplace_back(clock_.components().begin(),
                               clock_.components().end());
    }
    plan_max_load_ = std::max(plan_max_load_, max_load_);
    if (mb.token_count != tokens_) {
      return WrongCount(MicroBatchName(), "token_count", mb.token_count,
                        tokens_);
    }
    if (mb.max_rank_tokens != max_load_) {
      return WrongCount(MicroBatchName(), "max_rank_tokens", mb.max_rank_tokens,
                        max_load_);
    }
    if (!NearlyEqual(mb.predicted_seconds, time.seconds)) {
      return WrongReal(MicroBatchName(), "predicted_seconds",
                       mb.predicted_seconds, time.seconds);
    }
    return absl::OkStatus();
  }

  absl::Status CheckCoverage() const {
    const auto missing = std::find(placed_.begin(), placed_.end(), false);
    if (missing == placed_.end()) return absl::OkStatus();
    return Broken("coverage",
                  absl::StrCat("sequence ", missing - placed_.begin()),
                  "it is in no micro-batch");
  }

  absl::Status CheckBlocks() {
    std::sort(used_blocks_.begin(), used_blocks_.end());
    used_blocks_.erase(std::unique(used_blocks_.begin(), used_blocks_.end()),
                       used_blocks_.end());
    for (size_t i = 0; i < std::max(used_blocks_.size(), plan_.blocks.size());
         ++i) {
      const std::string where = absl::StrCat("entry ", i);
      if (i >= plan_.blocks.size()) {
        return Broken(
            "block list", where,
            absl::StrCat("it ends before ", BlockName(used_blocks_[i])));
      }
      if (i >= used_blocks_.size()) {
        return Broken("block list", where,
                      absl::StrCat("no sharded placement is left for ",
                                   BlockName(plan_.blocks[i])));
      }
      if (plan_.blocks[i] != used_blocks_[i]) {
        return Broken(
            "block list", where,
            absl::StrCat("it is ", BlockName(plan_.blocks[i]),
                         ", the placements' is ", BlockName(used_blocks_[i])));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckSummary() const {
    const PlanSummary& s = plan_.summary;
    const struct {
      const char* field;
      int64_t in_plan;
      int64_t recomputed;
    } counts[] = {
        {"sharded_sequence_count", s.sharded_sequence_count,
         sharded_sequences_},
        {"sharded_token_count", s.sharded_token_count, sharded_tokens_},
        {"micro_batch_count", s.micro_batch_count,
         static_cast<int64_t>(plan_.micro_batches.size())},
        {"max_rank_tokens", s.max_rank_tokens, plan_max_load_},
    };
    for (const auto& c : counts) {
      if (c.in_plan != c.recomputed) {
        return WrongCount("summary", c.field, c.in_plan, c.recomputed);
      }
    }
    if (s.roll_back_count < 0) {
      return Broken("figures", "summary",
                    absl::StrCat("roll_back_count is ", s.roll_back_count,
                                 ", less than 0"));
    }
    // An imbalance is a ratio minus 1: the tolerance is that of the ratio.
    const struct {
      const char* field;
      double in_plan;
      double recomputed;
      double offset;
    } reals[] = {
        {"predicted_seconds", s.predicted_seconds, clock_.seconds(), 0},
        {"lower_bound_seconds", s.lower_bound_seconds,
         ComputeLowerBound(job_, cost_, lengths_).seconds, 0},
        {"dp_imbalance", s.dp_imbalance, clock_.dp_imbalance(), 1},
        {"rank_imbalance", s.rank_imbalance, clock_.rank_imbalance(), 1},
    };
    for (const auto& r : reals) {
      if (!NearlyEqual(r.in_plan + r.offset, r.recomputed + r.offset)) {
        return WrongReal("summary", r.field, r.in_plan, r.recomputed);
      }
    }
    return CheckExplanation(job_, std::ssize(lengths_), s);
  }

  absl::Status CheckPipeline() const {
    const PlanSummary& s = plan_.summary;
    PipelineFigures figures;
    if (job_.parallelism().pp_size > 1) {
      figures = TimePipeline(job_, components_);
    }
    if (!NearlyEqual(s.pipeline_seconds, figures.seconds)) {
      return WrongReal("summary", "pipeline_seconds", s.pipeline_seconds,
                       figures.seconds);
    }
    const double bubble = figures.Bubble(job_);
    if (!NearlyEqual(s.pipeline_bubble + 1, bubble + 1)) {
      return WrongReal("summary", "pipeline_bubble", s.pipeline_bubble, bubble);
    }
    return absl::OkStatus();
  }

  const Job& job_;
  const PoolShape pool_;
  const std::span<const int64_t> lengths_;
  const Plan& plan_;
  const CostModel cost_;
  StepClock clock_;

  // Of the whole plan, as far as it is checked.
  std::vector<bool> placed_;  // per sequence
  std::vector<Block> used_blocks_;
  int64_t sharded_sequences_ = 0;
  int64_t sharded_tokens_ = 0;
  int64_t plan_max_load_ = 0;
  // Per micro-batch; empty if pp_size is 1.
  std::vector<std::vector<Component>> components_;

  // Of the micro-batch under check.
  size_t micro_batch_ = 0;
  int64_t tokens_ = 0;
  int64_t max_load_ = 0;
  std::vector<int64_t> load_;       // rows, per rank
  std::vector<int64_t> gathered_;   // per rank; empty if gather is not modelled
  std::vector<BlockTotal> totals_;  // by block
};

}  // namespace

absl::Status CheckPlan(const Job& job, std::span<const int64_t> lengths,
                       const Plan& plan) {
  if (absl::Status s = CheckLengths(lengths); !s.ok()) return s;
  if (plan.chunk_plan || plan.policy == Policy::kChunkFlow) {
    return CheckChunkPlan(job, lengths, plan);
  }
  return PlanCheck(job, lengths, plan).Run();
}

}  // namespace skrull
