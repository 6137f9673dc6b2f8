#include "skrull/planner/optimizer/timeline.h"

#include <algorithm>

namespace skrull {

Timeline::Timeline(const Job& job, const SearchState& state)
    : overhead_(job.cost().seconds_per_micro_batch),
      uniform_(job.parallelism().uniform_micro_batch_count),
      state_(state),
      ready_(static_cast<size_t>(state.ranks() / state.cp_size())) {
  const size_t cells =
      ready_.size() * static_cast<size_t>(state.micro_batches());
  cells_.resize(cells);
  component_.resize(cells);
  duration_.resize(cells);
  Update();
}

void Timeline::ReadMicroBatch(int32_t micro_batch) {
  const auto dp_ranks = static_cast<int32_t>(ready_.size());
  const int32_t cp_size = state_.cp_size();
  int32_t* component = &component_[Index(micro_batch, 0)];
  double* duration = &duration_[Index(micro_batch, 0)];
  for (int32_t d = 0; d < dp_ranks; ++d) {
    component[d] = d;
    double slowest = 0;
    for (int32_t r = d * cp_size; r < (d + 1) * cp_size; ++r) {
      slowest = std::max(slowest, state_.SlotSeconds(micro_batch, r));
    }
    duration[d] = slowest;
  }
  // Blocks of several DP ranks nest or are disjoint, so the largest one around
  // a DP rank is its component.
  for (int32_t i = 0; i < state_.num_degrees(); ++i) {
    const int32_t degree = state_.degree(i);
    if (degree <= cp_size) continue;
    for (int32_t d = 0; d < dp_ranks; ++d) {
      const Spot around = state_.SpotAround(micro_batch, i, d * cp_size);
      if (!around.placed() || state_.FirstOn(around) < 0) continue;
      const int32_t first = d;
      const int32_t end = d + degree / cp_size;
      const double slowest =
          *std::max_element(duration + first, duration + end);
      for (; d < end; ++d) {
        component[d] = first;
        duration[d] = slowest;
      }
      --d;
    }
  }
  for (int32_t d = 0; d < dp_ranks; ++d) {
    if (duration[d] > 0 || uniform_) duration[d] += overhead_;
  }
}

void Timeline::Update() {
  const auto dp_ranks = static_cast<int32_t>(ready_.size());
  // Runs one micro-batch: a component begins at its members' latest `ready_`,
  // noted in `field`, and its end is their next.
  const auto run = [&](int32_t i, double Cell::* field) {
    for (int32_t first = 0; first < dp_ranks;) {
      int32_t end = first;
      double begin = 0;
      while (end < dp_ranks && component_[Index(i, end)] == first) {
        begin = std::max(begin, ready_[static_cast<size_t>(end++)]);
      }
      for (int32_t d = first; d < end; ++d) {
        cells_[Index(i, d)].*field = begin;
        ready_[static_cast<size_t>(d)] = begin + duration_[Index(i, d)];
      }
      first = end;
    }
  };
  std::fill(ready_.begin(), ready_.end(), 0.0);
  for (int32_t i = 0; i < state_.micro_batches(); ++i) {
    ReadMicroBatch(i);
    run(i, &Cell::start);
  }
  seconds_ = *std::max_element(ready_.begin(), ready_.end());
  std::fill(ready_.begin(), ready_.end(), 0.0);
  for (int32_t i = state_.micro_batches() - 1; i >= 0; --i) {
    run(i, &Cell::tail);
  }
}

double Timeline::Limit(int32_t micro_batch, int32_t first, int32_t last) const {
  double start = 0;
  double tail = 0;
  for (int32_t d = first; d <= last; ++d) {
    const Cell& cell = cells_[Index(micro_batch, d)];
    start = std::max(start, cell.start);
    tail = std::max(tail, cell.tail);
  }
  return seconds_ - overhead_ - start - tail;
}

}  // namespace skrull
