#include "skrull/cli/simulation.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "skrull/cli/figures_text.h"
#include "skrull/cli/io.h"
#include "skrull/cli/table.h"

namespace skrull::cli {
namespace {

using nlohmann::ordered_json;

// Of throughputs, not of epochs: right also where an epoch lacks the batches
// that were refused.
std::optional<double> SpeedUpOverFirst(const Simulation& simulation,
                                       const SimulatedEpoch& epoch) {
  const auto base = simulation.epochs.front().TokensPerSecondPerRank();
  const auto own = epoch.TokensPerSecondPerRank();
  if (!base || !own) return std::nullopt;
  return *own / *base;
}

std::optional<double> PeakLoad(const SimulatedEpoch& epoch) {
  if (!epoch.figures.max_rank_tokens) return std::nullopt;
  return static_cast<double>(*epoch.figures.max_rank_tokens) /
         static_cast<double>(epoch.bucket_size_tokens);
}

std::optional<double> EpochSeconds(const ReplayFigures& figures) {
  if (figures.planned_count == 0) return std::nullopt;
  return figures.predicted_seconds;
}

// Whole tokens where there are many, else four digits.
std::string ThroughputText(const std::optional<double>& throughput) {
  if (!throughput) return "-";
  return *throughput >= 1000 ? WithThousands(std::llround(*throughput))
                             : absl::StrFormat("%.4g", *throughput);
}

std::string WhatChanges(const SimulatedEpoch& epoch) {
  std::vector<std::string> parts;
  if (epoch.changes.empty()) parts.push_back("the job as it is");
  for (const Change& change : epoch.changes) {
    parts.push_back(absl::StrCat(change.field, " ", change.value));
  }
  return absl::StrCat("batch size ", epoch.batch_size, ", ",
                      absl::StrJoin(parts, ", "));
}

}  // namespace

std::optional<double> SimulatedEpoch::TokensPerSecondPerRank() const {
  if (!(figures.predicted_seconds > 0)) return std::nullopt;
  return static_cast<double>(figures.token_count) /
         (figures.predicted_seconds * static_cast<double>(ranks));
}

std::string SimulationText(const Simulation& simulation) {
  std::string changes;
  std::vector<std::string> numbers;
  std::vector<ReplayFigures> all_figures;
  std::vector<std::vector<std::string>> rows;
  std::string refusals;
  for (const SimulatedEpoch& epoch : simulation.epochs) {
    const ReplayFigures& figures = epoch.figures;
    const std::string number = absl::StrCat(rows.size());
    numbers.push_back(number);
    all_figures.push_back(figures);
    if (!figures.refusals.empty()) {
      absl::StrAppend(&refusals, "refused in row ", number, ":\n",
                      RefusalLines(figures.refusals));
    }
    absl::StrAppend(&changes, "row ", number, ": ", WhatChanges(epoch), "\n");
    rows.push_back(
        {number, PlannedText(figures), SecondsText(EpochSeconds(figures)),
         ThroughputText(epoch.TokensPerSecondPerRank()),
         FactorText(SpeedUpOverFirst(simulation, epoch)),
         PercentText(figures.mean_gap), PercentText(figures.worst_gap),
         PercentText(PeakLoad(epoch)),
         figures.mean_planning_seconds ? HumanSeconds(figures.planning_seconds)
                                       : "-"});
  }
  const SimulatedEpoch& first = simulation.epochs.front();
  return absl::StrCat(
      "job ", simulation.job, ": ", WithThousands(first.ranks), " ranks of ",
      WithThousands(first.bucket_size_tokens), " tokens, ", first.policy, "\n",
      "lengths ", simulation.lengths, ": ",
      WithThousands(simulation.sequence_count), " sequences\n\n", changes, "\n",
      TextTable({"row", "planned", "epoch", "tokens/s/rank", "speed-up", "gap",
                 "worst", "peak load", "planning"},
                rows),
      PipelineTable("row", numbers, all_figures), refusals.empty() ? "" : "\n",
      refusals,
      "\nPlanned: of the epoch's steps; the other figures are over these. "
      "Speed-up: of tokens/s/rank, over\nrow 0. Gap: predicted time over the "
      "lower bound, less 1, mean of the steps. Peak load: the fullest\nrank, "
      "of the bucket. Planning: all steps.\n");
}

ordered_json SimulationRow(const Simulation& simulation, size_t index) {
  const SimulatedEpoch& epoch = simulation.epochs[index];
  const ReplayFigures& figures = epoch.figures;
  ordered_json changes = ordered_json::object();
  for (const Change& change : epoch.changes) {
    changes[change.field] = change.value;
  }
  return {
      {"job", simulation.job},
      {"lengths", simulation.lengths},
      {"row", index},
      {"batch_size", epoch.batch_size},
      {"changes", changes},
      {"policy", epoch.policy},
      {"ranks", epoch.ranks},
      {"steps", figures.batch_count},
      {"planned_steps", figures.planned_count},
      {"planned_tokens", figures.token_count},
      {"epoch_seconds", OrNull(EpochSeconds(figures))},
      {"tokens_per_second_per_rank", OrNull(epoch.TokensPerSecondPerRank())},
      {"speed_up", OrNull(SpeedUpOverFirst(simulation, epoch))},
      {"mean_gap", OrNull(figures.mean_gap)},
      {"worst_gap", OrNull(figures.worst_gap)},
      {"max_rank_tokens", OrNull(figures.max_rank_tokens)},
      {"bucket_size_tokens", epoch.bucket_size_tokens},
      {"peak_load", OrNull(PeakLoad(epoch))},
      {"sharded_token_share", OrNull(figures.sharded_token_share)},
      {"mean_micro_batches", OrNull(figures.mean_micro_batch_count)},
      {"mean_pipeline_seconds", OrNull(figures.mean_pipeline_seconds)},
      {"mean_pipeline_bubble", OrNull(figures.mean_pipeline_bubble)},
      {"planning_seconds", figures.planning_seconds},
      {"p50_planning_seconds", OrNull(figures.p50_planning_seconds)},
      {"worst_planning_seconds", OrNull(figures.worst_planning_seconds)},
      {"refused_steps", figures.refused_count()},
      {"refusals", RefusalCounts(figures.refusals)}};
}

}  // namespace skrull::cli
