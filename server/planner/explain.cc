#include "skrull/planner/explain.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace skrull {
namespace {

// A plan this close to the bound is limited by what the bound is made of.
constexpr double kNearBound = 1.05;
// A change that lowers the bound by less is not worth naming.
constexpr double kLeastGain = 0.99;

// One field of the job changed, and what it becomes.
struct Change {
  std::string field;
  std::string value;
  JobSpec spec;
};

std::vector<Change> Changes(const Job& job) {
  std::vector<Change> changes;
  const auto add = [&](std::string field, std::string value, auto set) {
    changes.push_back({std::move(field), std::move(value), job.spec()});
    set(changes.back().spec);
  };
  const ParallelismSpec& p = job.parallelism();
  if (p.block_scope != BlockScope::kPool && p.dp_size > 1) {
    add("parallelism.block_scope", "BLOCK_SCOPE_POOL", [](JobSpec& spec) {
      spec.parallelism.block_scope = BlockScope::kPool;
    });
  } else if (p.block_scope == BlockScope::kGroup && p.cp_size > 2) {
    add("parallelism.block_scope", "BLOCK_SCOPE_SUBGROUP", [](JobSpec& spec) {
      spec.parallelism.block_scope = BlockScope::kSubgroup;
    });
  }
  const int64_t bucket = 2 * job.bucket_size();
  add("memory.bucket_size_tokens", absl::StrCat(bucket),
      [&](JobSpec& spec) { spec.memory.bucket_size_tokens = bucket; });
  if (p.dp_size % 2 == 0) {
    add("parallelism.cp_size", absl::StrCat(2 * p.cp_size), [](JobSpec& spec) {
      spec.parallelism.cp_size *= 2;
      spec.parallelism.dp_size /= 2;
    });
  }
  if (p.cp_size % 2 == 0) {
    add("parallelism.cp_size", absl::StrCat(p.cp_size / 2), [](JobSpec& spec) {
      spec.parallelism.cp_size /= 2;
      spec.parallelism.dp_size *= 2;
    });
  }
  return changes;
}

std::vector<WhatIf> WhatIfs(const Job& job, std::span<const int64_t> lengths,
                            double bound) {
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<WhatIf> what_ifs;
  for (Change& change : Changes(job)) {
    const absl::StatusOr<Job> changed = Job::Create(change.spec);
    if (!changed.ok() || longest > changed->longest_sequence()) continue;
    const double seconds =
        ComputeLowerBound(*changed, CostModel(*changed), lengths).seconds;
    if (seconds > kLeastGain * bound) continue;
    what_ifs.push_back({.field = std::move(change.field),
                        .value = std::move(change.value),
                        .lower_bound_seconds = seconds});
  }
  std::stable_sort(what_ifs.begin(), what_ifs.end(),
                   [](const WhatIf& a, const WhatIf& b) {
                     return a.lower_bound_seconds < b.lower_bound_seconds;
                   });
  return what_ifs;
}

// The sequence that takes most of a rank's time: its compute there and, if
// sharded, the exchange of its tokens alone.
std::pair<int32_t, double> Heaviest(const CostModel& cost, const Plan& plan,
                                    int32_t rank) {
  std::pair<int32_t, double> heaviest{0, -1.0};
  for (const MicroBatchPlan& micro_batch : plan.micro_batches) {
    for (const SequencePlacement& p : micro_batch.placements) {
      if (rank < p.first_rank || rank >= p.first_rank + p.degree) continue;
      const double seconds = cost.Comp(p.token_count, p.degree).total() +
                             cost.Exchange(p.block(), p.token_count);
      if (seconds > heaviest.second ||
          (seconds == heaviest.second && p.sequence < heaviest.first)) {
        heaviest = {p.sequence, seconds};
      }
    }
  }
  return heaviest;
}

Bottleneck Classify(double predicted, const LowerBound& bound) {
  if (predicted > kNearBound * bound.seconds) return Bottleneck::kPlacement;
  if (bound.seconds == bound.even_seconds) {
    return bound.overhead_seconds > bound.even_seconds / 2
               ? Bottleneck::kOverhead
               : Bottleneck::kWork;
  }
  if (bound.seconds == bound.alone_seconds) {
    return bound.exchange_seconds > bound.alone_seconds / 2
               ? Bottleneck::kExchange
               : Bottleneck::kSequence;
  }
  return Bottleneck::kExchange;
}

std::string Reason(Bottleneck bottleneck, const Plan& plan,
                   std::span<const int64_t> lengths, const LowerBound& bound) {
  const double predicted = plan.summary.predicted_seconds;
  const std::string longest =
      absl::StrFormat("sequence %d (%d tokens)", bound.longest,
                      lengths[static_cast<size_t>(bound.longest)]);
  switch (bottleneck) {
    case Bottleneck::kUnspecified:
      break;
    case Bottleneck::kWork:
      return absl::StrFormat(
          "The batch's work is the limit: spread evenly over all ranks it "
          "takes "
          "%.4g s of the step's %.4g s.",
          bound.even_seconds, predicted);
    case Bottleneck::kSequence:
      return absl::StrFormat(
          "One sequence is the limit: %s alone takes %.4g s of the step's "
          "%.4g s on the block that suits it best.",
          longest, bound.alone_seconds, predicted);
    case Bottleneck::kExchange:
      if (bound.seconds == bound.alone_seconds) {
        return absl::StrFormat(
            "The exchange of one sequence is the limit: of the %.4g s that %s "
            "takes alone, %.4g s are its keys and values.",
            bound.alone_seconds, longest, bound.exchange_seconds);
      }
      return absl::StrFormat(
          "Exchange is the limit: sharded widely enough for a step this short, "
          "the long sequences exchange more than other work can hide (%.4g s; "
          "%.4g s without).",
          bound.traded_seconds,
          std::max(bound.even_seconds, bound.alone_seconds));
    case Bottleneck::kOverhead:
      return absl::StrFormat(
          "The overhead of micro-batches is the limit: memory asks for %.4g s "
          "of it in a step of %.4g s.",
          bound.overhead_seconds, predicted);
    case Bottleneck::kPlacement:
      return absl::StrFormat(
          "The plan is the limit: it takes %.4g s, and the batch allows for as "
          "little as %.4g s as far as the bound tells.",
          predicted, bound.seconds);
  }
  return {};
}

}  // namespace

Explanation Explain(const Job& job, const CostModel& cost,
                    std::span<const int64_t> lengths, const Plan& plan,
                    const LowerBound& bound, int32_t last_rank) {
  const double predicted = plan.summary.predicted_seconds;
  Explanation out;
  out.bottleneck = Classify(predicted, bound);
  out.rank = last_rank;
  const auto [sequence, seconds] = Heaviest(cost, plan, last_rank);
  out.sequence = sequence;
  out.sequence_share =
      predicted > 0 ? std::clamp(seconds / predicted, 0.0, 1.0) : 0;
  out.what_ifs = WhatIfs(job, lengths, bound.seconds);
  std::vector<std::string> parts = {
      Reason(out.bottleneck, plan, lengths, bound),
      absl::StrFormat(
          "Rank %d is busy to the end; %.0f %% of the step it works "
          "on sequence %d (%d tokens).",
          out.rank, 100 * out.sequence_share, out.sequence,
          lengths[static_cast<size_t>(out.sequence)])};
  if (out.bottleneck == Bottleneck::kPlacement &&
      plan.policy != Policy::kOptimized) {
    parts.push_back("POLICY_OPTIMIZED searches for a faster plan.");
  }
  if (!out.what_ifs.empty()) {
    const WhatIf& best = out.what_ifs.front();
    parts.push_back(absl::StrFormat(
        "%s %s would lower the bound from %.4g s to %.4g s.", best.field,
        best.value, bound.seconds, best.lower_bound_seconds));
  }
  out.text = absl::StrJoin(parts, " ");
  return out;
}

}  // namespace skrull
