#include "skrull/planner/optimizer/part_search.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "skrull/planner/optimizer/construct.h"
#include "skrull/planner/optimizer/refine.h"
#include "skrull/planner/optimizer/search_state.h"

namespace skrull {
namespace {

// A plan this close to work spread evenly is not searched further.
constexpr double kCloseEnough = 1.002;
// Sharding thresholds of longest-first (LongestFirstOptions::stretch), from
// sharding all that exceeds an even share to leaving sequences whole; on the
// lists of the benchmarks each is the best one for some batches.
constexpr double kStretches[] = {1.0, 1.03, 1.08, 1.2, 1.5};
// The one that is best most often where work does not spread evenly.
constexpr double kUsualStretch = 1.08;
// One micro-batch more than memory needs is tried if the best plan is further
// than this from work spread evenly over so many: on the lists no plan of more
// micro-batches came as close.
constexpr double kOneMoreGain = 1.02;
// Constructed states that local search starts from, one after another while
// steps are left: the best one's neighbourhood is not always the best.
constexpr size_t kStarts = 3;
// A slot takes about 200 bytes: the state of a part stays below 200 MB.
constexpr int64_t kMostSlots = int64_t{1} << 20;

class PartSearch {
 public:
  PartSearch(const Job& job, const CostModel& cost,
             std::span<const int64_t> lengths, const Part& part,
             const SearchLimits& limits)
      : job_(job), cost_(cost), part_(part), limits_(limits) {
    for (const int32_t k : part.descending) {
      lengths_.push_back(lengths[static_cast<size_t>(k)]);
    }
    descending_.resize(lengths_.size());
    std::iota(descending_.begin(), descending_.end(), 0);
  }

  std::vector<MicroBatchPlan> Run() {
    const int64_t ranks = int64_t{part_.dp_ranks} * job_.pool().cp_size;
    if (FewestMicroBatches(ranks) >= kMostSlots / ranks ||
        ConstructionCost(job_, cost_, lengths_, ranks) >
            limits_.construction_cost) {
      return {};
    }
    SearchState state(job_, cost_, lengths_, part_.first_dp_rank,
                      part_.dp_ranks);
    // Every sequence is put on a whole CP group, and each of its ranks updates
    // the blocks around it.
    const double unsharding_cost = static_cast<double>(lengths_.size()) *
                                   job_.pool().cp_size * state.num_degrees();
    const double even = EvenSeconds(ranks);
    const double total = std::max(even, AloneSeconds(state));
    const auto fewest = static_cast<int32_t>(FewestMicroBatches(ranks));
    double best_stretch = 0;  // at the fewest micro-batches; 0 = none
    for (const int32_t count : {fewest, fewest + 1}) {
      const double ideal = even + count * job_.cost().seconds_per_micro_batch;
      const double close_enough = kCloseEnough * ideal;
      if (count > fewest && best_seconds_ <= kOneMoreGain * ideal) break;
      for (const double stretch : kStretches) {
        if (count > fewest && best_stretch != 0 && stretch != best_stretch &&
            stretch != kUsualStretch) {
          continue;
        }
        const double before = best_seconds_;
        if (ConstructLongestFirst(descending_,
                                  {.micro_batches = count,
                                   .slot_seconds = total / count,
                                   .stretch = stretch},
                                  state)) {
          Offer(state);
        }
        if (count == fewest && best_seconds_ < before) best_stretch = stretch;
        if (best_seconds_ <= close_enough) return std::move(best_);
      }
      if (unsharding_cost <= limits_.construction_cost &&
          ConstructUnsharded(descending_, count, state)) {
        Offer(state);
      }
      if (best_seconds_ <= close_enough) return std::move(best_);
    }
    int64_t steps_left = limits_.search_steps;
    for (const Start& start : std::exchange(starts_, {})) {
      state.Reset(start.micro_batches);
      for (const int32_t k : descending_) {
        state.Add(k, start.spots[static_cast<size_t>(k)]);
      }
      steps_left -= Refine(job_, steps_left, state);
      Offer(state);
    }
    return std::move(best_);
  }

 private:
  // Seconds of every slot, over all micro-batches, were work spread evenly.
  double EvenSeconds(int64_t ranks) const {
    double work = 0;
    for (const int64_t length : lengths_) {
      work += cost_.Comp(length, 1).total();
    }
    return work / static_cast<double>(ranks);
  }

  // Seconds of the longest sequence on the block that is fastest for it.
  double AloneSeconds(const SearchState& state) const {
    double least = std::numeric_limits<double>::infinity();
    for (int32_t d = 0; d < state.num_degrees(); ++d) {
      if (!state.DegreeHolds(d, 0)) continue;
      const int32_t degree = state.degree(d);
      least = std::min(least, cost_.Comp(lengths_[0], degree).total() +
                                  cost_.MinExchange(degree, lengths_[0]));
    }
    return least;
  }

  int64_t FewestMicroBatches(int64_t ranks) const {
    const int64_t tokens =
        std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0});
    const int64_t room = job_.bucket_size() * ranks;
    return (tokens + room - 1) / room;
  }

  // A constructed state that local search may start from.
  struct Start {
    double seconds = 0;
    int32_t micro_batches = 0;
    std::vector<Spot> spots;
  };

  // Keeps the state's plan if it is the fastest so far, and the state among the
  // kStarts fastest.
  void Offer(const SearchState& state) {
    std::vector<MicroBatchPlan> micro_batches;
    state.Export(part_.descending, &micro_batches);
    StepClock clock(job_, cost_);
    for (const MicroBatchPlan& micro_batch : micro_batches) {
      clock.Run(micro_batch.placements);
    }
    const double seconds = clock.seconds();
    const auto slower = std::find_if(
        starts_.begin(), starts_.end(),
        [&](const Start& start) { return seconds < start.seconds; });
    if (slower != starts_.end() || starts_.size() < kStarts) {
      Start start{.seconds = seconds,
                  .micro_batches = state.micro_batches(),
                  .spots = {}};
      for (const int32_t k : descending_) start.spots.push_back(state.spot(k));
      starts_.insert(slower, std::move(start));
      if (starts_.size() > kStarts) starts_.pop_back();
    }
    if (seconds >= best_seconds_) return;
    best_seconds_ = seconds;
    best_ = std::move(micro_batches);
  }

  const Job& job_;
  const CostModel& cost_;
  const Part& part_;
  const SearchLimits limits_;
  std::vector<int64_t> lengths_;     // of the part, descending
  std::vector<int32_t> descending_;  // its sequences: 0, 1, ...
  std::vector<MicroBatchPlan> best_;
  double best_seconds_ = std::numeric_limits<double>::infinity();
  std::vector<Start> starts_;  // fastest first
};

}  // namespace

std::vector<MicroBatchPlan> SearchPart(const Job& job, const CostModel& cost,
                                       std::span<const int64_t> lengths,
                                       const Part& part,
                                       const SearchLimits& limits) {
  return PartSearch(job, cost, lengths, part, limits).Run();
}

}  // namespace skrull
