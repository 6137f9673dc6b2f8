#include "skrull/cli/plan_text.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "skrull/cli/io.h"
#include "skrull/v1/plan.pb.h"

namespace skrull::cli {
namespace {

double Percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

// What the chunks of a plan are.
std::string ChunksText(const v1::ChunkPlan& plan) {
  int64_t split = 0;
  int64_t recomputed = 0;
  for (const v1::Chunk& chunk : plan.chunks()) {
    if (chunk.group_size() > 1 && chunk.group_index() == 0) ++split;
  }
  for (const v1::ChunkSchedule& schedule : plan.schedules()) {
    for (const v1::ChunkOperation& operation : schedule.operations()) {
      if (operation.pass() == v1::CHUNK_PASS_RECOMPUTE) ++recomputed;
    }
  }
  return absl::StrFormat(
      "  chunks %s of at most %s tokens, %s sequences split, %s chunks "
      "recomputed, %d retained\n",
      WithThousands(plan.chunks_size()),
      WithThousands(plan.chunk_size_tokens()), WithThousands(split),
      WithThousands(recomputed), plan.retained_chunks());
}

}  // namespace

std::string PlanText(int64_t batch, std::span<const int64_t> lengths,
                     const PlanResult& plan) {
  const PlanFigures& figures = plan.figures;
  const int64_t tokens =
      std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  std::string text = absl::StrFormat(
      "batch %d, step %d: %s sequences, %s tokens, %s%s\n", batch, plan.step,
      WithThousands(static_cast<int64_t>(lengths.size())),
      WithThousands(tokens), plan.policy, plan.committed ? ", committed" : "");
  absl::StrAppendFormat(
      &text, "  predicted %s, lower bound %s, gap %.2f %%\n",
      HumanSeconds(figures.predicted_seconds),
      HumanSeconds(figures.lower_bound_seconds),
      Percent(figures.predicted_seconds - figures.lower_bound_seconds,
              figures.lower_bound_seconds));
  v1::Plan chunks;
  if (chunks.ParseFromString(plan.plan_bytes) && chunks.has_chunk_plan()) {
    text += ChunksText(chunks.chunk_plan());
  }
  absl::StrAppendFormat(
      &text,
      "  micro-batches %d, roll-backs %d, sharded %s sequences (%.2f %% of "
      "tokens)\n",
      figures.micro_batch_count, figures.roll_back_count,
      WithThousands(figures.sharded_sequence_count),
      Percent(static_cast<double>(figures.sharded_token_count),
              static_cast<double>(tokens)));
  absl::StrAppendFormat(
      &text,
      "  fullest rank %s tokens, imbalance of DP ranks %.2f %%, of ranks "
      "%.2f %%\n",
      WithThousands(figures.max_rank_tokens), 100 * figures.dp_imbalance,
      100 * figures.rank_imbalance);
  if (figures.pipeline_seconds > 0) {
    absl::StrAppendFormat(&text, "  pipeline %s, stages idle %.2f %%\n",
                          HumanSeconds(figures.pipeline_seconds),
                          100 * figures.pipeline_bubble);
  }
  absl::StrAppendFormat(
      &text, "  digest %s%s\n", plan.digest,
      plan.planning_seconds
          ? ", planned in " + HumanSeconds(*plan.planning_seconds)
          : "");
  return text;
}

std::string ExplanationText(const PlanResult& plan) {
  v1::Plan wire;
  if (!wire.ParseFromString(plan.plan_bytes) ||
      !wire.summary().has_explanation()) {
    return "  why: the planner that made this plan does not explain it\n";
  }
  const v1::Explanation& why = wire.summary().explanation();
  std::string text = absl::StrCat("  why: ", why.text(), "\n");
  const double bound = wire.summary().lower_bound_seconds();
  for (const v1::WhatIf& change : why.what_ifs()) {
    absl::StrAppendFormat(&text, "  with %s %s: lower bound %s (%+.2f %%)\n",
                          change.field(), change.value(),
                          HumanSeconds(change.lower_bound_seconds()),
                          Percent(change.lower_bound_seconds() - bound, bound));
  }
  return text;
}

std::string RefusalText(int64_t batch, const absl::Status& status) {
  return absl::StrCat("batch ", batch, " refused, ",
                      absl::StatusCodeToString(status.code()), ": ",
                      std::string(status.message()), "\n");
}

}  // namespace skrull::cli
