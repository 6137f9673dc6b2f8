#include "skrull/planner/optimizer/refine.h"

#include <algorithm>
#include <vector>

#include "skrull/planner/optimizer/timeline.h"

namespace skrull {
namespace {

// A step must relieve the critical slot by at least this share of the step's
// time: keeps the search from ending in rounding noise.
constexpr double kLeastGain = 1e-6;

// Steps that reading so many slots counts as.
int64_t StepsOf(int64_t slots) { return 1 + slots / 32; }

class Refiner {
 public:
  Refiner(const Job& job, int64_t most_steps, SearchState& state)
      : most_steps_(most_steps), state_(state), timeline_(job, state) {}

  int64_t Run() {
    std::vector<char> stuck;
    const auto index = [&](int32_t i, int32_t rank) {
      return static_cast<size_t>(i) * static_cast<size_t>(state_.ranks()) +
             static_cast<size_t>(rank);
    };
    stuck.assign(index(state_.micro_batches(), 0), 0);
    const std::ptrdiff_t slots = std::ssize(stuck);
    while (steps_ < most_steps_) {
      steps_ += StepsOf(slots);
      // The critical slot that takes longest, of those not stuck.
      int32_t micro_batch = -1;
      int32_t rank = -1;
      double longest = 0;
      const double slack = kLeastGain * timeline_.seconds();
      for (int32_t i = 0; i < state_.micro_batches(); ++i) {
        for (int32_t d = 0; d < state_.ranks() / state_.cp_size(); ++d) {
          const double critical = timeline_.Limit(i, d, d) - slack;
          for (int32_t r = d * state_.cp_size(); r < (d + 1) * state_.cp_size();
               ++r) {
            const double seconds = state_.SlotSeconds(i, r);
            if (seconds > longest && seconds >= critical &&
                !stuck[index(i, r)]) {
              longest = seconds;
              micro_batch = i;
              rank = r;
            }
          }
        }
      }
      if (rank < 0) break;
      const Step step = BestStep(micro_batch, rank);
      // A step chosen from some of the candidates would lead elsewhere than the
      // one that a larger budget chooses.
      if (steps_ >= most_steps_) break;
      if (step.sequence < 0) {
        stuck[index(micro_batch, rank)] = 1;
        continue;
      }
      Take(step);
      timeline_.Update();
      std::fill(stuck.begin(), stuck.end(), char{0});
    }
    return steps_;
  }

 private:
  struct Step {
    int32_t sequence = -1;
    Spot to;
    int32_t swapped = -1;  // the sequence that comes in return, if any
    // Seconds by which the slots touched exceed their limits: below 0.
    double over = 0;
  };

  double LimitOf(const Spot& spot) const {
    const Block block = state_.LocalBlockOf(spot);
    return timeline_.Limit(
        spot.micro_batch, block.first_rank / state_.cp_size(),
        (block.first_rank + block.degree - 1) / state_.cp_size());
  }

  Step BestStep(int32_t micro_batch, int32_t rank) {
    Step best;
    best.over = -kLeastGain * timeline_.seconds();
    on_slot_.clear();
    for (int32_t d = 0; d < state_.num_degrees(); ++d) {
      const Spot around = state_.SpotAround(micro_batch, d, rank);
      if (!around.placed()) continue;
      for (int32_t k = state_.FirstOn(around); k >= 0; k = state_.NextOn(k)) {
        on_slot_.push_back(k);
      }
    }
    const int32_t dp_rank = rank / state_.cp_size();
    const double limit = timeline_.Limit(micro_batch, dp_rank, dp_rank);
    for (const int32_t sequence : on_slot_) {
      const Spot home = state_.spot(sequence);
      state_.Remove(sequence);
      const double left = state_.SlotSeconds(micro_batch, rank) - limit;
      if (left < best.over) {
        TryMoves(sequence, home, left, best);
        if (home.degree == 0) TrySwaps(sequence, home, limit, best);
      }
      state_.Add(sequence, home);
      if (steps_ >= most_steps_) break;
    }
    return best;
  }

  // `sequence` is off its home here; `left` is what that leaves over the limit.
  void TryMoves(int32_t sequence, const Spot& home, double left, Step& best) {
    for (int32_t i = 0; i < state_.micro_batches(); ++i) {
      for (int32_t d = 0; d < state_.num_degrees(); ++d) {
        if (!state_.DegreeHolds(d, sequence)) continue;
        steps_ += StepsOf(state_.ranks());
        const Spot spot = state_.BestSpot(sequence, i, d);
        if (!spot.placed() || spot == home) continue;
        const double over =
            std::max(left, state_.Try(sequence, spot) - LimitOf(spot));
        if (over < best.over) best = {sequence, spot, -1, over};
      }
    }
  }

  void TrySwaps(int32_t sequence, const Spot& home, double limit, Step& best) {
    for (int32_t i = 0; i < state_.micro_batches(); ++i) {
      for (int32_t rank = 0; rank < state_.ranks(); ++rank) {
        const Spot other{i, 0, rank};
        if (other == home) continue;
        const double other_limit = LimitOf(other);
        for (int32_t k = state_.FirstOn(other); k >= 0; k = state_.NextOn(k)) {
          if (state_.length(k) >= state_.length(sequence)) continue;
          if (++steps_ >= most_steps_) return;
          const double left = state_.TrySwap(home, k, -1) - limit;
          if (left >= best.over) continue;
          const double over =
              std::max(left, state_.TrySwap(other, sequence, k) - other_limit);
          if (over < best.over) best = {sequence, other, k, over};
        }
      }
    }
  }

  void Take(const Step& step) {
    const Spot home = state_.spot(step.sequence);
    state_.Remove(step.sequence);
    if (step.swapped >= 0) {
      state_.Remove(step.swapped);
      state_.Add(step.swapped, home);
    }
    state_.Add(step.sequence, step.to);
  }

  const int64_t most_steps_;
  SearchState& state_;
  Timeline timeline_;
  int64_t steps_ = 0;
  std::vector<int32_t> on_slot_;
};

}  // namespace

int64_t Refine(const Job& job, int64_t steps, SearchState& state) {
  return Refiner(job, steps, state).Run();
}

}  // namespace skrull
