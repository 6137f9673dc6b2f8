#include "skrull/cli/report_data.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "skrull/cli/report_html.h"
#include "skrull/cli/why_sharded.h"
#include "skrull/planner/cost_model.h"
#include "skrull/planner/planner.h"
#include "skrull/planner/rank_timeline.h"
#include "skrull/server/convert.h"

namespace skrull::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kTicks = 1e7;
// More rows than anyone reads.
constexpr size_t kMostSharded = 200;

std::string ScopeName(BlockScope scope) {
  switch (scope) {
    case BlockScope::kGroup:
      return "BLOCK_SCOPE_GROUP";
    case BlockScope::kSubgroup:
      return "BLOCK_SCOPE_SUBGROUP";
    case BlockScope::kPool:
      return "BLOCK_SCOPE_POOL";
  }
  return "BLOCK_SCOPE_UNSPECIFIED";
}

ordered_json JobData(const Job& job) {
  ordered_json data = {
      {"dp_size", job.pool().dp_size},
      {"cp_size", job.pool().cp_size},
      {"block_scope", ScopeName(job.parallelism().block_scope)},
      {"overlap_scope", job.cost().overlap_scope == OverlapScope::kLayer
                            ? "OVERLAP_SCOPE_LAYER"
                            : "OVERLAP_SCOPE_ATTENTION"},
      {"bucket_size_tokens", job.bucket_size()},
      {"longest_on_rank_tokens", job.LongestOnDegree(1)}};
  if (job.models_gather()) data["byte_budget"] = job.byte_budget();
  return data;
}

ordered_json SummaryData(const PlanSummary& summary) {
  ordered_json data = {
      {"predicted_seconds", summary.predicted_seconds},
      {"lower_bound_seconds", summary.lower_bound_seconds},
      {"roll_back_count", summary.roll_back_count},
      {"sharded_sequence_count", summary.sharded_sequence_count},
      {"sharded_token_count", summary.sharded_token_count},
      {"micro_batch_count", summary.micro_batch_count},
      {"max_rank_tokens", summary.max_rank_tokens},
      {"dp_imbalance", summary.dp_imbalance},
      {"rank_imbalance", summary.rank_imbalance},
      {"pipeline_seconds", summary.pipeline_seconds},
      {"pipeline_bubble", summary.pipeline_bubble}};
  if (!summary.explanation) return data;
  const Explanation& why = *summary.explanation;
  ordered_json what_ifs = ordered_json::array();
  for (const WhatIf& what_if : why.what_ifs) {
    what_ifs.push_back({{"field", what_if.field},
                        {"value", what_if.value},
                        {"lower_bound_seconds", what_if.lower_bound_seconds}});
  }
  data["explanation"] = {{"bottleneck", BottleneckName(why.bottleneck)},
                         {"rank", why.rank},
                         {"sequence", why.sequence},
                         {"sequence_share", why.sequence_share},
                         {"what_ifs", std::move(what_ifs)},
                         {"text", why.text}};
  return data;
}

// Predicted seconds of the batch by the policies the papers compare with; those
// that refuse it are left out.
ordered_json Comparisons(const Job& job, std::span<const int64_t> lengths) {
  ordered_json data = ordered_json::array();
  for (const Policy policy :
       {Policy::kStaticCp, Policy::kPackedStaticCp, Policy::kSkrull}) {
    const absl::StatusOr<Plan> plan =
        MakePlan(job, lengths, {.key = {}, .policy = policy});
    if (!plan.ok()) continue;
    data.push_back({{"policy", PolicyName(policy)},
                    {"predicted_seconds", plan->summary.predicted_seconds}});
  }
  return data;
}

// The fullest micro-batch of a rank.
struct Peak {
  int64_t local_tokens = 0;
  int64_t sharded_tokens = 0;
  int32_t micro_batch = 0;
  double bytes =
      0;  // of the micro-batch that needs most, gathered K/V included

  int64_t tokens() const { return local_tokens + sharded_tokens; }
};

class Drawing {
 public:
  Drawing(const Job& job, const Plan& plan)
      : job_(job),
        plan_(plan),
        cost_(job),
        timeline_(job, cost_),
        peaks_(static_cast<size_t>(job.pool().ranks())),
        gathered_(peaks_.size()),
        local_(peaks_.size()),
        tracks_(peaks_.size(), ordered_json::array()),
        tick_seconds_(plan.summary.predicted_seconds / kTicks) {
    for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
      RunMicroBatch(static_cast<int32_t>(i));
    }
    spans_.clear();
    timeline_.Finish(&spans_);
    AppendSpans();
  }

  void AddTo(ordered_json* data) {
    (*data)["tick_seconds"] = tick_seconds_;
    (*data)["micro_batches"] = std::move(micro_batches_);
    ordered_json ranks = ordered_json::array();
    for (const Peak& peak : peaks_) {
      ordered_json rank = {{"local_tokens", peak.local_tokens},
                           {"sharded_tokens", peak.sharded_tokens},
                           {"micro_batch", peak.micro_batch}};
      if (job_.models_gather()) rank["bytes"] = peak.bytes;
      ranks.push_back(std::move(rank));
    }
    (*data)["ranks"] = std::move(ranks);
    // Ranks of a group that do the same share one track.
    std::map<ordered_json, size_t> index;
    ordered_json tracks = ordered_json::array();
    ordered_json rank_tracks = ordered_json::array();
    for (ordered_json& track : tracks_) {
      const auto [found, added] = index.emplace(track, index.size());
      rank_tracks.push_back(found->second);
      if (added) tracks.push_back(std::move(track));
    }
    (*data)["tracks"] = std::move(tracks);
    (*data)["rank_tracks"] = std::move(rank_tracks);
  }

 private:
  void RunMicroBatch(int32_t index) {
    const MicroBatchPlan& micro_batch =
        plan_.micro_batches[static_cast<size_t>(index)];
    spans_.clear();
    timeline_.Run(micro_batch.placements, &spans_);
    AppendSpans();
    AddPeaks(index, micro_batch);

    double start = timeline_.seconds();
    double end = 0;
    for (int32_t d = 0; d < job_.pool().dp_size; ++d) {
      const StepClock::Slot slot = timeline_.clock().slot(d);
      if (slot.end <= slot.start) continue;
      start = std::min(start, slot.start);
      end = std::max(end, slot.end);
    }
    ordered_json placements = ordered_json::array();
    for (const SequencePlacement& p : micro_batch.placements) {
      placements.push_back({p.sequence, p.first_rank, p.degree});
    }
    micro_batches_.push_back(
        {{"token_count", micro_batch.token_count},
         {"predicted_seconds", micro_batch.predicted_seconds},
         {"max_rank_tokens", micro_batch.max_rank_tokens},
         {"start_seconds", start},
         {"end_seconds", std::max(start, end)},
         {"placements", std::move(placements)}});
  }

  void AddPeaks(int32_t index, const MicroBatchPlan& micro_batch) {
    std::fill(gathered_.begin(), gathered_.end(), 0);
    std::fill(local_.begin(), local_.end(), 0);
    for (const SequencePlacement& p : micro_batch.placements) {
      std::vector<int64_t>& of = p.degree == 1 ? local_ : gathered_;
      for (int32_t r = 0; r < p.degree; ++r) {
        of[static_cast<size_t>(p.first_rank + r)] += p.token_count;
      }
    }
    for (size_t r = 0; r < peaks_.size(); ++r) {
      Peak& peak = peaks_[r];
      const int64_t rows = timeline_.clock().loads()[r].tokens;
      if (rows > peak.tokens()) {
        peak.local_tokens = local_[r];
        peak.sharded_tokens = rows - local_[r];
        peak.micro_batch = index;
      }
      peak.bytes = std::max(peak.bytes,
                            static_cast<double>(rows) * job_.bytes_per_token() +
                                static_cast<double>(gathered_[r]) *
                                    job_.gather_bytes_per_token());
    }
  }

  void AppendSpans() {
    const auto ticks = [this](double seconds) {
      return std::llround(seconds / tick_seconds_);
    };
    for (const RankSpan& span : spans_) {
      ordered_json& track = tracks_[static_cast<size_t>(span.rank)];
      track.push_back(span.micro_batch);
      track.push_back(static_cast<int>(span.activity));
      track.push_back(ticks(span.start));
      track.push_back(ticks(span.end));
    }
  }

  const Job& job_;
  const Plan& plan_;
  const CostModel cost_;
  RankTimeline timeline_;
  std::vector<RankSpan> spans_;
  std::vector<Peak> peaks_;
  std::vector<int64_t> gathered_;  // tokens of this micro-batch
  std::vector<int64_t> local_;
  std::vector<ordered_json> tracks_;  // per rank, four numbers a span
  ordered_json micro_batches_ = ordered_json::array();
  const double tick_seconds_;
};

ordered_json ShardedData(const Job& job, const Plan& plan) {
  ordered_json data = ordered_json::array();
  for (const ShardedSequence& s : WhySharded(job, plan, kMostSharded)) {
    ordered_json row = {{"sequence", s.placement.sequence},
                        {"token_count", s.placement.token_count},
                        {"first_rank", s.placement.first_rank},
                        {"degree", s.placement.degree},
                        {"micro_batch", s.micro_batch},
                        {"share_seconds", s.share_seconds},
                        {"exchange_seconds", s.exchange_seconds},
                        {"local_seconds", s.local_seconds},
                        {"reason", ShardReasonName(s.reason)}};
    if (s.reason == ShardReason::kTime || s.reason == ShardReason::kPolicy) {
      row["local_rank"] = s.local_rank;
      row["local_step_seconds"] = s.local_step_seconds;
    }
    data.push_back(std::move(row));
  }
  return data;
}

}  // namespace

ordered_json ReportData(const Job& job, std::span<const int64_t> lengths,
                        const Plan& plan) {
  ordered_json activities = ordered_json::array();
  for (int i = 0; i <= static_cast<int>(RankActivity::kExchange); ++i) {
    activities.push_back(RankActivityName(static_cast<RankActivity>(i)));
  }
  ordered_json data = {{"job", plan.key.job},
                       {"step", plan.key.step},
                       {"attempt", plan.key.attempt},
                       {"policy", PolicyName(plan.policy)},
                       {"digest", EncodePlan(plan).digest},
                       {"spec", JobData(job)},
                       {"summary", SummaryData(plan.summary)},
                       {"comparisons", Comparisons(job, lengths)},
                       {"lengths", lengths},
                       {"activities", std::move(activities)},
                       {"sharded", ShardedData(job, plan)}};
  Drawing(job, plan).AddTo(&data);
  return data;
}

std::string ReportPage(const ordered_json& data) {
  const std::string page = kReportHtml;
  const std::string placeholder = "@SKRULL_REPORT_DATA@";
  const size_t at = page.find(placeholder);
  std::string out = page.substr(0, at);
  // In JSON these characters stand only inside strings, where the escape means
  // the same.
  for (const char c : data.dump(-1, ' ', /*ensure_ascii=*/true,
                                ordered_json::error_handler_t::replace)) {
    switch (c) {
      case '<':
        out += "\\u003c";
        break;
      case '>':
        out += "\\u003e";
        break;
      case '&':
        out += "\\u0026";
        break;
      default:
        out += c;
    }
  }
  return out + page.substr(at + placeholder.size());
}

}  // namespace skrull::cli
