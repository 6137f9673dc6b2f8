#include "skrull/planner/rank_timeline.h"

#include <algorithm>

namespace skrull {

std::string RankActivityName(RankActivity activity) {
  switch (activity) {
    case RankActivity::kOverhead:
      return "overhead";
    case RankActivity::kLinear:
      return "linear";
    case RankActivity::kLocal:
      return "local";
    case RankActivity::kWait:
      return "wait";
    case RankActivity::kSharded:
      return "sharded";
    case RankActivity::kIdle:
      return "idle";
    case RankActivity::kExchange:
      return "exchange";
  }
  return "unknown";
}

RankTimeline::RankTimeline(const Job& job, const CostModel& cost)
    : job_(job),
      cost_(cost),
      clock_(job, cost),
      ready_(static_cast<size_t>(job.pool().dp_size), 0.0) {}

void RankTimeline::Append(int32_t rank, RankActivity activity, double start,
                          double end, std::vector<RankSpan>* spans) const {
  if (end <= start) return;
  spans->push_back({.rank = rank,
                    .micro_batch = micro_batch_,
                    .activity = activity,
                    .start = start,
                    .end = end});
}

void RankTimeline::AppendRank(int32_t rank, const StepClock::Slot& slot,
                              std::vector<RankSpan>* spans) {
  const RankLoad& load = clock_.loads()[static_cast<size_t>(rank)];
  const double overhead = job_.cost().seconds_per_micro_batch;
  // Written as StepClock does, so that the slowest rank ends when it says; the
  // boundaries in between are kept from passing that by a rounding.
  const double end = slot.start + (overhead + cost_.RankSeconds(load));
  const auto at = [&](double seconds) {
    return std::min(slot.start + seconds, end);
  };
  const bool by_layer = job_.cost().overlap_scope == OverlapScope::kLayer;
  const double linear = by_layer ? 0 : load.local.linear + load.sharded.linear;
  const double local = by_layer ? load.local.total() : load.local.attention;
  const double sharded =
      by_layer ? load.sharded.total() : load.sharded.attention;
  const double overlap = at(overhead + linear);
  const double local_end = at(overhead + linear + local);
  const double exchange_end = at(overhead + linear + load.exchange);
  // Without shares nothing follows what overlaps: it ends with the rank.
  const double sharded_begin =
      sharded > 0 ? std::max(local_end, exchange_end) : end;

  Append(rank, RankActivity::kOverhead, slot.start, at(overhead), spans);
  Append(rank, RankActivity::kLinear, at(overhead), overlap, spans);
  if (load.exchange >= local) {
    Append(rank, RankActivity::kLocal, overlap, local_end, spans);
    Append(rank, RankActivity::kWait, local_end, sharded_begin, spans);
    Append(rank, RankActivity::kExchange, overlap, sharded_begin, spans);
  } else {
    Append(rank, RankActivity::kLocal, overlap, sharded_begin, spans);
    Append(rank, RankActivity::kExchange, overlap, exchange_end, spans);
  }
  Append(rank, RankActivity::kSharded, sharded_begin, end, spans);
  Append(rank, RankActivity::kIdle, end, slot.end, spans);
}

void RankTimeline::Run(std::span<const SequencePlacement> placements,
                       std::vector<RankSpan>* spans) {
  clock_.Run(placements);
  const int32_t cp_size = job_.pool().cp_size;
  for (int32_t d = 0; d < job_.pool().dp_size; ++d) {
    const StepClock::Slot slot = clock_.slot(d);
    double& ready = ready_[static_cast<size_t>(d)];
    if (slot.end > ready) {
      for (int32_t rank = d * cp_size; rank < (d + 1) * cp_size; ++rank) {
        Append(rank, RankActivity::kIdle, ready, slot.start, spans);
        AppendRank(rank, slot, spans);
      }
    }
    ready = slot.end;
  }
  ++micro_batch_;
}

void RankTimeline::Finish(std::vector<RankSpan>* spans) {
  micro_batch_ = RankSpan::kStepEnd;
  for (int32_t rank = 0; rank < job_.pool().ranks(); ++rank) {
    const auto d = static_cast<size_t>(rank / job_.pool().cp_size);
    Append(rank, RankActivity::kIdle, ready_[d], seconds(), spans);
  }
}

std::vector<RankSpan> StepSpans(const Job& job, const Plan& plan) {
  const CostModel cost(job);
  RankTimeline timeline(job, cost);
  std::vector<RankSpan> spans;
  for (const MicroBatchPlan& micro_batch : plan.micro_batches) {
    timeline.Run(micro_batch.placements, &spans);
  }
  timeline.Finish(&spans);
  return spans;
}

}  // namespace skrull
