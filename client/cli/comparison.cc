#include "skrull/cli/comparison.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "skrull/cli/figures_text.h"
#include "skrull/cli/io.h"
#include "skrull/cli/table.h"

namespace skrull::cli {
namespace {

using nlohmann::ordered_json;

std::optional<double> PeakLoad(const Comparison& comparison,
                               const ReplayFigures& figures) {
  if (!figures.max_rank_tokens) return std::nullopt;
  return static_cast<double>(*figures.max_rank_tokens) /
         static_cast<double>(comparison.bucket_size_tokens);
}

ordered_json Row(const Comparison& comparison, const ComparedPolicy& row) {
  const ReplayFigures& figures = row.figures;
  return {{"job", comparison.job},
          {"lengths", comparison.lengths},
          {"policy", row.policy},
          {"batches", figures.batch_count},
          {"planned_batches", figures.planned_count},
          {"planned_tokens", figures.token_count},
          {"ranks", comparison.ranks},
          {"mean_predicted_seconds", OrNull(figures.mean_predicted_seconds)},
          {"mean_gap", OrNull(figures.mean_gap)},
          {"worst_gap", OrNull(figures.worst_gap)},
          {"speed_up", OrNull(row.speed_up.of_totals)},
          {"mean_speed_up", OrNull(row.speed_up.mean)},
          {"speed_up_batches", row.speed_up.batch_count},
          {"max_rank_tokens", OrNull(figures.max_rank_tokens)},
          {"bucket_size_tokens", comparison.bucket_size_tokens},
          {"peak_load", OrNull(PeakLoad(comparison, figures))},
          {"sharded_token_share", OrNull(figures.sharded_token_share)},
          {"mean_micro_batches", OrNull(figures.mean_micro_batch_count)},
          {"mean_pipeline_seconds", OrNull(figures.mean_pipeline_seconds)},
          {"mean_pipeline_bubble", OrNull(figures.mean_pipeline_bubble)},
          {"roll_backs", figures.roll_back_count},
          {"mean_planning_seconds", OrNull(figures.mean_planning_seconds)},
          {"p50_planning_seconds", OrNull(figures.p50_planning_seconds)},
          {"worst_planning_seconds", OrNull(figures.worst_planning_seconds)},
          {"refused_batches", figures.refused_count()},
          {"refusals", RefusalCounts(figures.refusals)}};
}

std::string RefusedBy(const std::string& who,
                      const std::vector<Refusals>& refusals) {
  if (refusals.empty()) return "";
  return absl::StrCat("refused by ", who, ":\n", RefusalLines(refusals));
}

}  // namespace

std::string ComparisonText(const Comparison& comparison) {
  std::vector<std::vector<std::string>> costs;
  std::vector<std::vector<std::string>> plans;
  std::vector<std::string> names;
  std::vector<ReplayFigures> all_figures;
  std::string refusals;
  for (const ComparedPolicy& row : comparison.policies) {
    const ReplayFigures& figures = row.figures;
    names.push_back(row.policy);
    all_figures.push_back(figures);
    costs.push_back(
        {row.policy, PlannedText(figures),
         SecondsText(figures.mean_predicted_seconds),
         FactorText(row.speed_up.of_totals), FactorText(row.speed_up.mean),
         PercentText(figures.mean_gap), PercentText(figures.worst_gap),
         PercentText(figures.sharded_token_share)});
    plans.push_back({row.policy, PercentText(PeakLoad(comparison, figures)),
                     NumberText(figures.mean_micro_batch_count),
                     figures.planned_count > 0
                         ? WithThousands(figures.roll_back_count)
                         : "-",
                     SecondsText(figures.mean_planning_seconds),
                     SecondsText(figures.p50_planning_seconds),
                     SecondsText(figures.worst_planning_seconds)});
    absl::StrAppend(&refusals, RefusedBy(row.policy, figures.refusals));
  }
  absl::StrAppend(
      &refusals,
      RefusedBy(absl::StrCat(kSpeedUpBase, ", which speed-ups are over"),
                comparison.base_refusals));
  return absl::StrCat(
      "job ", comparison.job, ": ", WithThousands(comparison.ranks),
      " ranks of ", WithThousands(comparison.bucket_size_tokens), " tokens\n",
      "lengths ", comparison.lengths, ": ",
      WithThousands(comparison.sequence_count), " sequences in ",
      WithThousands(comparison.batch_count),
      comparison.batch_count == 1 ? " batch\n\n" : " batches\n\n",
      TextTable({"policy", "planned", "step", "speed-up", "(mean)", "gap",
                 "worst", "sharded"},
                costs),
      "\n",
      TextTable({"policy", "peak load", "micro-batches", "roll-backs",
                 "planning", "p50", "worst"},
                plans),
      PipelineTable("policy", names, all_figures), refusals.empty() ? "" : "\n",
      refusals, "\n");
}

std::string ComparisonLegend() {
  return absl::StrCat(
      "Figures are over the batches that the policy planned: means of step, "
      "gap (predicted time over the\nlower bound, less 1), micro-batches and "
      "planning time. Peak load: the fullest rank, of the bucket.\nSpeed-up: "
      "total predicted time of ",
      kSpeedUpBase,
      " over the policy's, over the batches that\nboth planned; (mean): mean "
      "of those batches' own ratios.\n");
}

std::vector<ordered_json> ComparisonRows(const Comparison& comparison) {
  std::vector<ordered_json> rows;
  for (const ComparedPolicy& row : comparison.policies) {
    rows.push_back(Row(comparison, row));
  }
  return rows;
}

}  // namespace skrull::cli
