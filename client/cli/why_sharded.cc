#include "skrull/cli/why_sharded.h"

#include <algorithm>

#include "skrull/planner/cost_model.h"

namespace skrull::cli {
namespace {

using Placements = std::vector<SequencePlacement>;

class Judge {
 public:
  Judge(const Job& job, const Plan& plan) : job_(job), plan_(plan), cost_(job) {
    const auto ranks = static_cast<size_t>(job.pool().ranks());
    gathered_.resize(ranks);
  }

  ShardedSequence Decide(const SequencePlacement& placement,
                         int32_t micro_batch);

 private:
  // Rows, gathered tokens and loads of a micro-batch without one placement.
  void ReadWithout(const Placements& placements, int32_t sequence);
  // The rank of the block that has room and would be done first; -1 if none.
  int32_t BestRank(const SequencePlacement& placement) const;
  double StepSecondsWith(int32_t micro_batch,
                         const SequencePlacement& placement) const;

  const Job& job_;
  const Plan& plan_;
  const CostModel cost_;
  std::vector<RankLoad> loads_;
  std::vector<int64_t> gathered_;
};

void Judge::ReadWithout(const Placements& placements, int32_t sequence) {
  Placements others;
  std::fill(gathered_.begin(), gathered_.end(), 0);
  for (const SequencePlacement& p : placements) {
    if (p.sequence == sequence) continue;
    others.push_back(p);
    if (p.degree == 1) continue;
    for (int32_t r = 0; r < p.degree; ++r) {
      gathered_[static_cast<size_t>(p.first_rank + r)] += p.token_count;
    }
  }
  StepClock clock(job_, cost_);
  clock.Run(others);
  loads_.assign(clock.loads().begin(), clock.loads().end());
}

int32_t Judge::BestRank(const SequencePlacement& placement) const {
  const CompSeconds whole = cost_.Comp(placement.token_count, 1);
  int32_t best = -1;
  double least = 0;
  for (int32_t r = 0; r < placement.degree; ++r) {
    const int32_t rank = placement.first_rank + r;
    RankLoad load = loads_[static_cast<size_t>(rank)];
    load.tokens += placement.token_count;
    if (!job_.FitsRank(load.tokens, gathered_[static_cast<size_t>(rank)])) {
      continue;
    }
    load.local.linear += whole.linear;
    load.local.attention += whole.attention;
    const double seconds = cost_.RankSeconds(load);
    if (best >= 0 && seconds >= least) continue;
    best = rank;
    least = seconds;
  }
  return best;
}

double Judge::StepSecondsWith(int32_t micro_batch,
                              const SequencePlacement& placement) const {
  StepClock clock(job_, cost_);
  for (size_t i = 0; i < plan_.micro_batches.size(); ++i) {
    Placements placements = plan_.micro_batches[i].placements;
    if (i == static_cast<size_t>(micro_batch)) {
      for (SequencePlacement& p : placements) {
        if (p.sequence == placement.sequence) p = placement;
      }
    }
    clock.Run(placements);
  }
  return clock.seconds();
}

ShardedSequence Judge::Decide(const SequencePlacement& placement,
                              int32_t micro_batch) {
  ShardedSequence out{
      .placement = placement,
      .micro_batch = micro_batch,
      .share_seconds =
          cost_.Comp(placement.token_count, placement.degree).total(),
      .exchange_seconds =
          cost_.Exchange(placement.block(), placement.token_count),
      .local_seconds = cost_.Comp(placement.token_count, 1).total()};
  if (placement.token_count > job_.LongestOnDegree(1)) {
    out.reason = ShardReason::kLength;
    return out;
  }
  ReadWithout(plan_.micro_batches[static_cast<size_t>(micro_batch)].placements,
              placement.sequence);
  const int32_t rank = BestRank(placement);
  if (rank < 0) {
    out.reason = ShardReason::kRoom;
    return out;
  }
  SequencePlacement local = placement;
  local.first_rank = rank;
  local.degree = 1;
  out.local_rank = rank;
  out.local_step_seconds = StepSecondsWith(micro_batch, local);
  // Sums in another order differ by roundings: those are no reason.
  constexpr double kRounding = 1e-12;
  out.reason =
      out.local_step_seconds > plan_.summary.predicted_seconds * (1 + kRounding)
          ? ShardReason::kTime
          : ShardReason::kPolicy;
  return out;
}

}  // namespace

std::string ShardReasonName(ShardReason reason) {
  switch (reason) {
    case ShardReason::kLength:
      return "length";
    case ShardReason::kRoom:
      return "room";
    case ShardReason::kTime:
      return "time";
    case ShardReason::kPolicy:
      return "policy";
  }
  return "unknown";
}

std::vector<ShardedSequence> WhySharded(const Job& job, const Plan& plan,
                                        size_t limit) {
  struct Where {
    SequencePlacement placement;
    int32_t micro_batch;
  };
  std::vector<Where> sharded;
  for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
    for (const SequencePlacement& p : plan.micro_batches[i].placements) {
      if (p.degree > 1) sharded.push_back({p, static_cast<int32_t>(i)});
    }
  }
  std::sort(sharded.begin(), sharded.end(), [](const Where& a, const Where& b) {
    if (a.placement.token_count != b.placement.token_count) {
      return a.placement.token_count > b.placement.token_count;
    }
    return a.placement.sequence < b.placement.sequence;
  });
  if (sharded.size() > limit) sharded.resize(limit);
  Judge judge(job, plan);
  std::vector<ShardedSequence> out;
  for (const Where& w : sharded) {
    out.push_back(judge.Decide(w.placement, w.micro_batch));
  }
  return out;
}

}  // namespace skrull::cli
