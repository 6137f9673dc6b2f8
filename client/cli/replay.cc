#include "skrull/cli/replay.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "skrull/cli/io.h"
#include "skrull/client/refusal.h"

namespace skrull::cli {
namespace {

void AddRefusal(int64_t batch, const BatchOutcome& outcome,
                std::vector<Refusals>* refusals) {
  auto found = std::find_if(
      refusals->begin(), refusals->end(),
      [&](const Refusals& r) { return r.reason == outcome.reason; });
  if (found == refusals->end()) {
    refusals->push_back(
        {.reason = outcome.reason, .batches = {}, .message = outcome.message});
    found = refusals->end() - 1;
  }
  ++found->batch_count;
  if (found->batch_count <= Refusals::kMaxNamed) {
    found->batches.push_back(batch);
  }
}

void SetPlanningTimes(std::vector<double> seconds, ReplayFigures* figures) {
  if (seconds.empty()) return;
  std::sort(seconds.begin(), seconds.end());
  figures->planning_seconds =
      std::accumulate(seconds.begin(), seconds.end(), 0.0);
  figures->mean_planning_seconds =
      figures->planning_seconds / static_cast<double>(seconds.size());
  figures->p50_planning_seconds = seconds[(seconds.size() - 1) / 2];
  figures->worst_planning_seconds = seconds.back();
}

// A message may name dozens of sequences: its beginning and its end, where it
// says what would help.
std::string Shortened(const std::string& message) {
  constexpr size_t kHead = 100;
  constexpr size_t kTail = 120;
  if (message.size() <= kHead + kTail + 5) return message;
  const auto inside = [&](size_t at) {  // of a UTF-8 sequence
    return (static_cast<unsigned char>(message[at]) & 0xC0) == 0x80;
  };
  size_t head = kHead;
  while (inside(head)) --head;
  size_t tail = message.size() - kTail;
  while (tail < message.size() && inside(tail)) ++tail;
  return absl::StrCat(message.substr(0, head), " ... ", message.substr(tail));
}

}  // namespace

BatchOutcome OutcomeOf(std::span<const int64_t> lengths,
                       const absl::StatusOr<PlanResult>& plan) {
  BatchOutcome outcome;
  if (plan.ok()) {
    outcome.figures = plan->figures;
    outcome.token_count =
        std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    outcome.planning_seconds = plan->planning_seconds;
    return outcome;
  }
  const std::optional<RefusalDetail> detail = GetRefusalDetail(plan.status());
  outcome.reason = detail && !detail->reason.empty()
                       ? detail->reason
                       : absl::StatusCodeToString(plan.status().code());
  outcome.message = std::string(plan.status().message());
  return outcome;
}

ReplayFigures Summarize(std::span<const BatchOutcome> outcomes) {
  ReplayFigures figures;
  figures.batch_count = std::ssize(outcomes);
  double gaps = 0;
  double worst_gap = 0;
  int64_t max_rank_tokens = 0;
  double sharded = 0;
  double micro_batches = 0;
  double pipeline_seconds = 0;
  double pipeline_bubbles = 0;
  std::vector<double> planning;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const BatchOutcome& outcome = outcomes[i];
    if (!outcome.figures) {
      AddRefusal(static_cast<int64_t>(i), outcome, &figures.refusals);
      continue;
    }
    const PlanFigures& plan = *outcome.figures;
    ++figures.planned_count;
    figures.token_count += outcome.token_count;
    figures.predicted_seconds += plan.predicted_seconds;
    figures.roll_back_count += plan.roll_back_count;
    const double gap =
        plan.lower_bound_seconds > 0
            ? plan.predicted_seconds / plan.lower_bound_seconds - 1
            : 0;
    gaps += gap;
    worst_gap = figures.planned_count == 1 ? gap : std::max(worst_gap, gap);
    max_rank_tokens = std::max(max_rank_tokens, plan.max_rank_tokens);
    sharded += static_cast<double>(plan.sharded_token_count);
    micro_batches += static_cast<double>(plan.micro_batch_count);
    pipeline_seconds += plan.pipeline_seconds;
    pipeline_bubbles += plan.pipeline_bubble;
    if (outcome.planning_seconds) planning.push_back(*outcome.planning_seconds);
  }
  SetPlanningTimes(std::move(planning), &figures);
  if (figures.planned_count == 0) return figures;
  const auto planned = static_cast<double>(figures.planned_count);
  figures.mean_predicted_seconds = figures.predicted_seconds / planned;
  figures.mean_gap = gaps / planned;
  figures.worst_gap = worst_gap;
  figures.max_rank_tokens = max_rank_tokens;
  figures.sharded_token_share =
      sharded / static_cast<double>(figures.token_count);
  figures.mean_micro_batch_count = micro_batches / planned;
  if (pipeline_seconds > 0) {
    figures.mean_pipeline_seconds = pipeline_seconds / planned;
    figures.mean_pipeline_bubble = pipeline_bubbles / planned;
  }
  return figures;
}

SpeedUp SpeedUpOver(std::span<const BatchOutcome> base,
                    std::span<const BatchOutcome> outcomes) {
  SpeedUp result;
  double base_seconds = 0;
  double seconds = 0;
  double ratios = 0;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (!base[i].figures || !outcomes[i].figures) continue;
    const double theirs = base[i].figures->predicted_seconds;
    const double ours = outcomes[i].figures->predicted_seconds;
    if (!(theirs > 0 && ours > 0)) continue;
    ++result.batch_count;
    base_seconds += theirs;
    seconds += ours;
    ratios += theirs / ours;
  }
  if (result.batch_count == 0) return result;
  result.of_totals = base_seconds / seconds;
  result.mean = ratios / static_cast<double>(result.batch_count);
  return result;
}

std::string RefusalLines(const std::vector<Refusals>& refusals) {
  std::string text;
  for (const Refusals& refused : refusals) {
    const bool more = refused.batch_count > Refusals::kMaxNamed;
    absl::StrAppend(&text, "  ", refused.reason, ": ",
                    WithThousands(refused.batch_count),
                    refused.batch_count == 1 ? " batch (" : " batches (",
                    absl::StrJoin(refused.batches, ", "), more ? ", ..." : "",
                    ")\n    ", Shortened(refused.message), "\n");
  }
  return text;
}

nlohmann::ordered_json RefusalCounts(const std::vector<Refusals>& refusals) {
  nlohmann::ordered_json counts = nlohmann::ordered_json::object();
  for (const Refusals& refused : refusals) {
    counts[refused.reason] = refused.batch_count;
  }
  return counts;
}

}  // namespace skrull::cli
