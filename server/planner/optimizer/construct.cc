#include "skrull/planner/optimizer/construct.h"

#include <algorithm>
#include <vector>

namespace skrull {
namespace {

// A spot and by how many seconds its slowest slot would exceed the target.
struct Choice {
  Spot spot;
  double over = SearchState::kDoesNotFit;
};

// The spot of the degree, over all micro-batches, that exceeds its target
// least; none where each exceeds it by `most_over` or more even without the
// sequence.
Choice BestOfDegree(int32_t sequence, int32_t degree,
                    std::span<const double> target, double most_over,
                    SearchState& state) {
  Choice best;
  best.over = most_over;
  for (int32_t i = 0; i < state.micro_batches(); ++i) {
    if (degree > 0 &&
        state.QuickestSeconds(i, degree) - target[static_cast<size_t>(i)] >=
            best.over) {
      continue;
    }
    const Spot spot = state.BestSpot(sequence, i, degree);
    if (!spot.placed()) continue;
    // Blocks are compared as they stand, and only the best is tried.
    const double seconds =
        degree == 0 ? state.Try(sequence, spot) : state.SpotSeconds(spot);
    const double over = seconds - target[static_cast<size_t>(i)];
    if (over < best.over) best = {spot, over};
  }
  if (!best.spot.placed()) return best;
  best.over = state.Try(sequence, best.spot) -
              target[static_cast<size_t>(best.spot.micro_batch)];
  return best;
}

Choice ChooseSpot(int32_t sequence, std::span<const double> target,
                  SearchState& state) {
  Choice best;
  for (int32_t d = 0; d < state.num_degrees(); ++d) {
    if (!state.DegreeHolds(d, sequence)) continue;
    const Choice choice = BestOfDegree(sequence, d, target, best.over, state);
    if (choice.over < best.over) best = choice;
    if (best.over <= 0) break;
  }
  return best;
}

}  // namespace

bool ConstructLongestFirst(std::span<const int32_t> descending,
                           const LongestFirstOptions& options,
                           SearchState& state) {
  const int32_t count = options.micro_batches;
  state.Reset(count);
  std::vector<double> target(static_cast<size_t>(count),
                             options.slot_seconds * options.stretch);
  for (const int32_t sequence : descending) {
    const Choice choice = ChooseSpot(sequence, target, state);
    if (!choice.spot.placed()) return false;
    state.Add(sequence, choice.spot);
    if (choice.over <= 0 || count == 1) continue;
    const double each = choice.over / (count - 1);
    for (double& seconds : target) seconds -= each;
    target[static_cast<size_t>(choice.spot.micro_batch)] += choice.over + each;
  }
  return true;
}

bool ConstructUnsharded(std::span<const int32_t> descending,
                        int32_t micro_batches, SearchState& state) {
  state.Reset(micro_batches);
  // The degree of a whole CP group. Gathered K/V can make that too small for a
  // sequence that one rank holds: such a batch is left to other constructions.
  int32_t group_degree = 0;
  while (state.degree(group_degree) != state.cp_size()) ++group_degree;
  const std::vector<double> none(static_cast<size_t>(micro_batches), 0.0);
  for (const int32_t sequence : descending) {
    Choice best;
    for (int32_t d = group_degree; d < state.num_degrees(); ++d) {
      if (!state.DegreeHolds(d, sequence)) continue;
      best = BestOfDegree(sequence, d, none, SearchState::kDoesNotFit, state);
      if (best.spot.placed()) break;
    }
    if (!best.spot.placed()) return false;
    state.Add(sequence, best.spot);
  }
  std::vector<double> slowest;
  for (int32_t i = 0; i < micro_batches; ++i) {
    slowest.push_back(state.SlotSeconds(i, state.SlowestRank(i)));
  }
  for (auto it = descending.rbegin(); it != descending.rend(); ++it) {
    const Spot sharded = state.spot(*it);
    if (sharded.degree == 0 || !state.DegreeHolds(0, *it)) continue;
    state.Remove(*it);
    const Spot local = state.BestSpot(*it, sharded.micro_batch, 0);
    const bool better =
        local.placed() && state.Try(*it, local) <=
                              slowest[static_cast<size_t>(sharded.micro_batch)];
    state.Add(*it, better ? local : sharded);
  }
  return true;
}

}  // namespace skrull
