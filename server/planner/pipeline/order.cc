#include "skrull/planner/pipeline/order.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "skrull/planner/pipeline/step_pipeline.h"

namespace skrull {
namespace {

// Unit passes that moving one slot at a time may simulate, in all convoys
// together: some milliseconds.
constexpr int64_t kSearchPasses = int64_t{1} << 19;

// The convoy with slot order[i] in the place of slot i.
Convoy Reordered(const Convoy& convoy, const std::vector<size_t>& first_unit,
                 const std::vector<size_t>& order) {
  Convoy out{convoy.first_dp_rank, convoy.dp_rank_count, {}, {}};
  out.units.reserve(convoy.units.size());
  for (const size_t slot : order) {
    for (size_t u = first_unit[slot]; u < first_unit[slot + 1]; ++u) {
      out.units.push_back(convoy.units[u]);
      out.units.back().slot = static_cast<int32_t>(out.micro_batch.size());
    }
    out.micro_batch.push_back(convoy.micro_batch[slot]);
  }
  return out;
}

// Searches for an order of one convoy's slots.
class OrderSearch {
 public:
  OrderSearch(const Job& job, const Convoy& convoy)
      : job_(job), convoy_(convoy), order_(convoy.micro_batch.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    first_unit_.assign(order_.size() + 1, 0);
    for (const PipelineUnit& unit : convoy.units) {
      ++first_unit_[static_cast<size_t>(unit.slot) + 1];
    }
    std::partial_sum(first_unit_.begin(), first_unit_.end(),
                     first_unit_.begin());
    least_ = Makespan(order_);
  }

  // The best order found.
  Convoy Run(int64_t passes) {
    TrySorted();
    const int64_t each = std::ssize(convoy_.units) * job_.parallelism().pp_size;
    TryMoves(passes / std::max<int64_t>(each, 1));
    return Reordered(convoy_, first_unit_, order_);
  }

 private:
  double Makespan(const std::vector<size_t>& order) const {
    return RunConvoy(job_, Reordered(convoy_, first_unit_, order))
        .makespan_seconds;
  }

  bool Offer(const std::vector<size_t>& order) {
    const double makespan = Makespan(order);
    if (makespan >= least_) return false;
    least_ = makespan;
    order_ = order;
    return true;
  }

  void TrySorted() {
    std::vector<double> seconds(order_.size(), 0.0);
    for (const PipelineUnit& unit : convoy_.units) {
      double& most = seconds[static_cast<size_t>(unit.slot)];
      most = std::max(most, unit.forward_seconds + unit.backward_seconds);
    }
    std::vector<size_t> order(order_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return seconds[a] > seconds[b];
    });
    Offer(order);
    std::reverse(order.begin(), order.end());
    Offer(order);
  }

  // Moves one slot to another place, first improvement, until none helps.
  void TryMoves(int64_t trials) {
    const auto count = std::ssize(order_);
    bool improved = true;
    while (improved) {
      improved = false;
      for (int64_t from = 0; from < count; ++from) {
        for (int64_t to = 0; to < count; ++to) {
          if (to == from) continue;
          if (--trials < 0) return;
          std::vector<size_t> order = order_;
          const auto begin = order.begin();
          if (from < to) {
            std::rotate(begin + from, begin + from + 1, begin + to + 1);
          } else {
            std::rotate(begin + to, begin + from, begin + from + 1);
          }
          if (Offer(order)) improved = true;
        }
      }
    }
  }

  const Job& job_;
  const Convoy& convoy_;
  std::vector<size_t> first_unit_;  // per slot, into units; + 1
  std::vector<size_t> order_;       // the best so far
  double least_ = 0;                // its makespan
};

// The step's predicted_seconds; `pipeline`, unless null, gets its
// micro-batches.
double RunStep(const Job& job, const CostModel& cost,
               std::span<const MicroBatchPlan> micro_batches,
               StepPipeline* pipeline) {
  StepClock clock(job, cost);
  for (const MicroBatchPlan& micro_batch : micro_batches) {
    clock.Run(micro_batch.placements);
    if (pipeline != nullptr) pipeline->Add(clock.components());
  }
  return clock.seconds();
}

// The plan in which each convoy runs its slots in its order.
std::vector<MicroBatchPlan> Zip(const Job& job,
                                const std::vector<Convoy>& convoys,
                                std::span<const MicroBatchPlan> micro_batches) {
  // place[d * count + i]: where DP rank d's part of micro-batch i goes.
  const size_t count = micro_batches.size();
  std::vector<size_t> place(static_cast<size_t>(job.pool().dp_size) * count, 0);
  size_t slots = 0;
  for (const Convoy& convoy : convoys) {
    slots = std::max(slots, convoy.micro_batch.size());
    for (int32_t d = 0; d < convoy.dp_rank_count; ++d) {
      const auto row = static_cast<size_t>(convoy.first_dp_rank + d) * count;
      for (size_t i = 0; i < convoy.micro_batch.size(); ++i) {
        place[row + convoy.micro_batch[i]] = i;
      }
    }
  }
  std::vector<MicroBatchPlan> out(slots);
  for (size_t i = 0; i < count; ++i) {
    for (const SequencePlacement& p : micro_batches[i].placements) {
      const auto d = static_cast<size_t>(p.first_rank / job.pool().cp_size);
      out[place[d * count + i]].placements.push_back(p);
    }
  }
  // Of a uniform job, DP ranks may now meet in what was empty for each of them.
  std::erase_if(out, [](const MicroBatchPlan& micro_batch) {
    return micro_batch.placements.empty();
  });
  for (MicroBatchPlan& micro_batch : out) {
    std::sort(micro_batch.placements.begin(), micro_batch.placements.end(),
              [](const SequencePlacement& a, const SequencePlacement& b) {
                return a.sequence < b.sequence;
              });
  }
  return out;
}

}  // namespace

StepSeconds OrderMicroBatches(const Job& job, const CostModel& cost,
                              std::vector<MicroBatchPlan>* micro_batches) {
  const bool staged = job.parallelism().pp_size > 1;
  if (!staged) {
    return {.pipeline = 0,
            .predicted = RunStep(job, cost, *micro_batches, nullptr)};
  }
  StepPipeline given(job);
  RunStep(job, cost, *micro_batches, &given);
  std::vector<Convoy> convoys = given.Convoys();
  for (Convoy& convoy : convoys) {
    convoy = OrderSearch(job, convoy).Run(kSearchPasses / std::ssize(convoys));
  }
  *micro_batches = Zip(job, convoys, *micro_batches);
  StepPipeline ordered(job);
  const double predicted = RunStep(job, cost, *micro_batches, &ordered);
  return {.pipeline = ordered.Run().makespan_seconds, .predicted = predicted};
}

}  // namespace skrull
