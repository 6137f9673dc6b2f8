// What a policy makes of the batches of a list: one outcome a batch, and the
// figures that `skrullctl compare` and `simulate` print of them. Pure data and
// functions.
#ifndef SKRULL_CLIENT_CLI_REPLAY_H_
#define SKRULL_CLIENT_CLI_REPLAY_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/client/plan_types.h"

namespace skrull::cli {

// One batch: planned, or refused.
struct BatchOutcome {
  std::optional<PlanFigures> figures;  // nullopt = refused
  int64_t token_count = 0;             // of a planned batch
  std::optional<double> planning_seconds;
  // Of a refused batch: the error's reason (docs/errors.md), or its code if it
  // has none; and its message.
  std::string reason;
  std::string message;
};

BatchOutcome OutcomeOf(std::span<const int64_t> lengths,
                       const absl::StatusOr<PlanResult>& plan);

// The batches refused for one reason.
struct Refusals {
  static constexpr int64_t kMaxNamed = 5;

  std::string reason;
  int64_t batch_count = 0;
  std::vector<int64_t> batches;  // the first of them, at most kMaxNamed
  std::string message;           // of the first
};

// Sums and means over the planned batches. What has no value because there are
// none is nullopt.
struct ReplayFigures {
  int64_t batch_count = 0;  // planned and refused
  int64_t planned_count = 0;
  int64_t token_count = 0;
  double predicted_seconds = 0;  // of all
  std::optional<double> mean_predicted_seconds;
  // Of predicted / lower bound - 1 of each batch.
  std::optional<double> mean_gap;
  std::optional<double> worst_gap;
  // Fullest rank of any micro-batch, tokens.
  std::optional<int64_t> max_rank_tokens;
  std::optional<double> sharded_token_share;  // of token_count
  std::optional<double> mean_micro_batch_count;
  int64_t roll_back_count = 0;
  // Time of the step through the job's stages, and the share of it they idle;
  // nullopt also when the job has one stage.
  std::optional<double> mean_pipeline_seconds;
  std::optional<double> mean_pipeline_bubble;
  // Of the batches whose planning time is known.
  double planning_seconds = 0;
  std::optional<double> mean_planning_seconds;
  std::optional<double> p50_planning_seconds;  // the lower median
  std::optional<double> worst_planning_seconds;
  // In order of their first batch.
  std::vector<Refusals> refusals;

  int64_t refused_count() const { return batch_count - planned_count; }
};

ReplayFigures Summarize(std::span<const BatchOutcome> outcomes);

// How much faster than `base`, over the batches that both planned.
struct SpeedUp {
  int64_t batch_count = 0;
  // Total predicted seconds of base / of the other: what an epoch gains.
  std::optional<double> of_totals;
  // Mean of the batches' own ratios.
  std::optional<double> mean;
};

// REQUIRES: both are outcomes of the same batches.
SpeedUp SpeedUpOver(std::span<const BatchOutcome> base,
                    std::span<const BatchOutcome> outcomes);

// "SEQUENCE_TOO_LONG: 2 batches (0, 7)\n    <message of the first>\n" for each
// reason, indented by two spaces; of a long message the beginning and the end.
std::string RefusalLines(const std::vector<Refusals>& refusals);

// {"SEQUENCE_TOO_LONG": 2, ...}
nlohmann::ordered_json RefusalCounts(const std::vector<Refusals>& refusals);

// null if there is no value.
template <typename T>
nlohmann::ordered_json OrNull(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_REPLAY_H_
