#include "skrull/planner/pipeline/simulator.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace skrull {
namespace {

// What one stage runs next.
struct Cursor {
  int32_t warm_up = 0;
  int32_t forward = 0;   // slots whose forward pass ran
  int32_t backward = 0;  // entries of the backward order that ran
};

class Simulation {
 public:
  Simulation(int32_t stages, int32_t lanes, std::span<const PipelineUnit> units,
             std::span<const int32_t> backward_order)
      : stages_(stages),
        lanes_(static_cast<size_t>(lanes)),
        slots_(static_cast<int32_t>(backward_order.size())),
        units_(units),
        backward_order_(backward_order),
        cursors_(static_cast<size_t>(stages)),
        ready_(lanes_ * static_cast<size_t>(stages), 0.0),
        passed_(units.size() * static_cast<size_t>(stages), 0.0),
        gradient_(static_cast<size_t>(stages) * backward_order.size(), char{0}),
        first_unit_(backward_order.size() + 1, 0) {
    for (const PipelineUnit& unit : units) {
      ++first_unit_[static_cast<size_t>(unit.slot) + 1];
    }
    for (size_t i = 1; i < first_unit_.size(); ++i) {
      first_unit_[i] += first_unit_[i - 1];
    }
    for (int32_t s = 0; s < stages; ++s) {
      cursors_[static_cast<size_t>(s)].warm_up = stages - 1 - s;
    }
  }

  PipelineTime Run() {
    // Stages that may have something to run. Each wakes its neighbours, whose
    // passes wait for its own.
    std::vector<int32_t> awake;
    for (int32_t s = stages_ - 1; s >= 0; --s) awake.push_back(s);
    while (!awake.empty()) {
      const int32_t s = awake.back();
      awake.pop_back();
      bool ran = false;
      while (RunNext(s)) ran = true;
      if (!ran) continue;
      if (s > 0) awake.push_back(s - 1);
      if (s + 1 < stages_) awake.push_back(s + 1);
    }
    if (!ready_.empty()) {
      time_.makespan_seconds = *std::max_element(ready_.begin(), ready_.end());
    }
    return time_;
  }

 private:
  // Runs the stage's next pass; false if it has none, or must wait for one of
  // its neighbours.
  bool RunNext(int32_t s) {
    Cursor& at = cursors_[static_cast<size_t>(s)];
    if (at.backward == slots_) return false;
    const int32_t next = backward_order_[static_cast<size_t>(at.backward)];
    const int64_t wanted = std::max<int64_t>(
        std::min<int64_t>(slots_, int64_t{at.backward} + 1 + at.warm_up),
        int64_t{next} + 1);
    if (at.forward < wanted) {
      if (s > 0 && cursors_[static_cast<size_t>(s - 1)].forward <= at.forward) {
        return false;
      }
      RunSlot(s, at.forward, /*forward=*/true);
      ++at.forward;
      return true;
    }
    if (s + 1 < stages_ && !Gradient(s + 1, next)) return false;
    RunSlot(s, next, /*forward=*/false);
    Gradient(s, next) = 1;
    ++at.backward;
    return true;
  }

  // True once the stage ran the slot's backward pass.
  char& Gradient(int32_t s, int32_t slot) {
    return gradient_[static_cast<size_t>(s) * static_cast<size_t>(slots_) +
                     static_cast<size_t>(slot)];
  }

  void RunSlot(int32_t s, int32_t slot, bool forward) {
    const int32_t from = forward ? s - 1 : s + 1;
    double* const ready = &ready_[static_cast<size_t>(s) * lanes_];
    const auto end = first_unit_[static_cast<size_t>(slot) + 1];
    for (size_t u = first_unit_[static_cast<size_t>(slot)]; u < end; ++u) {
      const PipelineUnit& unit = units_[u];
      const auto first = static_cast<size_t>(unit.first_lane);
      const auto last = first + static_cast<size_t>(unit.lane_count);
      double start =
          from < 0 || from == stages_ ? 0.0 : passed_[PassIndex(u, from)];
      for (size_t lane = first; lane < last; ++lane) {
        start = std::max(start, ready[lane]);
      }
      const double seconds =
          forward ? unit.forward_seconds : unit.backward_seconds;
      // A stage's backward pass overwrites its forward pass's end: the next
      // stage read that before it could send a gradient.
      passed_[PassIndex(u, s)] = start + seconds;
      for (size_t lane = first; lane < last; ++lane) {
        ready[lane] = start + seconds;
      }
      time_.busy_seconds += unit.lane_count * seconds;
    }
  }

  size_t PassIndex(size_t unit, int32_t s) const {
    return static_cast<size_t>(s) * units_.size() + unit;
  }

  const int32_t stages_;
  const size_t lanes_;
  const int32_t slots_;
  const std::span<const PipelineUnit> units_;
  const std::span<const int32_t> backward_order_;
  std::vector<Cursor> cursors_;     // per stage
  std::vector<double> ready_;       // [stage][lane]
  std::vector<double> passed_;      // [stage][unit]: end of its last pass
  std::vector<char> gradient_;      // [stage][slot]
  std::vector<size_t> first_unit_;  // per slot, into units_; + 1
  PipelineTime time_;
};

}  // namespace

double PipelineTime::Bubble(int32_t lanes, int32_t stages) const {
  const double all = makespan_seconds * lanes * stages;
  return all > 0 ? std::max(0.0, 1 - busy_seconds / all) : 0;
}

PipelineTime SimulatePipeline(int32_t stages, int32_t lanes,
                              std::span<const PipelineUnit> units,
                              std::span<const int32_t> backward_order) {
  return Simulation(stages, lanes, units, backward_order).Run();
}

}  // namespace skrull
