#include "skrull/planner/pipeline_checker.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace skrull {
namespace {

// DP ranks [first, last) of a train that run a slot together.
struct Group {
  size_t first = 0;
  size_t last = 0;
  PassSeconds seconds;
};

// DP ranks that go through the same list of slots.
struct Train {
  size_t ranks = 0;
  std::vector<std::vector<Group>> slots;
};

// A pass of one slot on one stage.
struct Pass {
  bool forward = false;
  size_t slot = 0;
};

// What a stage runs, in order.
std::vector<Pass> PassesOf(size_t stages_after, std::span<const int32_t> back) {
  std::vector<Pass> passes;
  size_t forwards = 0;
  for (size_t k = 0; k < back.size(); ++k) {
    const auto slot = static_cast<size_t>(back[k]);
    const size_t ahead = std::min(back.size(), stages_after + k + 1);
    while (forwards < ahead || forwards <= slot) {
      passes.push_back({true, forwards++});
    }
    passes.push_back({false, slot});
  }
  return passes;
}

// Every pass of a train, timed when what it waits for is.
class Timetable {
 public:
  Timetable(size_t stages, const Train& train, std::span<const int32_t> back)
      : train_(train),
        next_(stages, 0),
        free_(stages, std::vector<double>(train.ranks, 0.0)) {
    size_t groups = 0;
    for (const std::vector<Group>& slot : train.slots) {
      offset_.push_back(groups);
      groups += slot.size();
    }
    for (size_t s = 0; s < stages; ++s) {
      passes_.push_back(PassesOf(stages - 1 - s, back));
    }
    forward_end_.assign(stages, std::vector<double>(groups, 0.0));
    backward_end_ = forward_end_;
    done_.assign(stages, std::vector<char>(2 * train.slots.size(), 0));
  }

  PipelineFigures Run() {
    PipelineFigures figures;
    size_t left = 0;
    for (const std::vector<Pass>& passes : passes_) left += passes.size();
    // Back and forth over the stages, each running as far as it can.
    for (bool down = true; left > 0; down = !down) {
      for (size_t i = 0; i < passes_.size(); ++i) {
        const size_t s = down ? i : passes_.size() - 1 - i;
        for (; next_[s] < passes_[s].size() && CanRun(s); --left) {
          figures.busy += RunNext(s);
        }
      }
    }
    for (const std::vector<double>& stage : free_) {
      for (const double time : stage) {
        figures.seconds = std::max(figures.seconds, time);
      }
    }
    return figures;
  }

 private:
  bool IsEnd(size_t s, bool forward) const {
    return forward ? s == 0 : s + 1 == passes_.size();
  }

  bool CanRun(size_t s) const {
    const Pass& pass = passes_[s][next_[s]];
    if (IsEnd(s, pass.forward)) return true;
    const size_t from = pass.forward ? s - 1 : s + 1;
    return done_[from][2 * pass.slot + (pass.forward ? 0 : 1)] != 0;
  }

  // The busy seconds of the stage's next pass.
  double RunNext(size_t s) {
    const Pass& pass = passes_[s][next_[s]++];
    const std::vector<Group>& groups = train_.slots[pass.slot];
    std::vector<std::vector<double>>& ends =
        pass.forward ? forward_end_ : backward_end_;
    double busy = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      const Group& group = groups[g];
      const size_t at = offset_[pass.slot] + g;
      const double seconds =
          pass.forward ? group.seconds.forward : group.seconds.backward;
      double end = 0;
      if (!IsEnd(s, pass.forward)) end = ends[pass.forward ? s - 1 : s + 1][at];
      for (size_t r = group.first; r < group.last; ++r) {
        end = std::max(end, free_[s][r]);
      }
      end += seconds;
      ends[s][at] = end;
      for (size_t r = group.first; r < group.last; ++r) free_[s][r] = end;
      busy += static_cast<double>(group.last - group.first) * seconds;
    }
    done_[s][2 * pass.slot + (pass.forward ? 0 : 1)] = 1;
    return busy;
  }

  const Train& train_;
  std::vector<size_t> offset_;  // per slot: its first group, over all slots
  std::vector<std::vector<Pass>> passes_;          // per stage
  std::vector<size_t> next_;                       // per stage, into passes_
  std::vector<std::vector<double>> free_;          // [stage][rank]: from when
  std::vector<std::vector<double>> forward_end_;   // [stage][group]
  std::vector<std::vector<double>> backward_end_;  // [stage][group]
  std::vector<std::vector<char>> done_;            // [stage][2 slot + backward]
};

std::vector<int32_t> Ascending(size_t count) {
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

double PipelineFigures::Bubble(const Job& job) const {
  const double all = seconds * job.pool().dp_size * job.parallelism().pp_size;
  return all > 0 ? std::max(0.0, (all - busy) / all) : 0;
}

PipelineFigures TimePipeline(const Job& job, std::span<const PassSeconds> units,
                             std::span<const int32_t> backward_order) {
  Train train{.ranks = 1, .slots = {}};
  for (const PassSeconds& seconds : units) {
    train.slots.push_back({{.first = 0, .last = 1, .seconds = seconds}});
  }
  return Timetable(static_cast<size_t>(job.parallelism().pp_size), train,
                   backward_order)
      .Run();
}

PipelineFigures TimePipeline(
    const Job& job, const std::vector<std::vector<Component>>& micro_batches) {
  const auto dp_size = static_cast<size_t>(job.pool().dp_size);
  const double ratio = job.cost().backward_forward_ratio;
  // head[d]: the first DP rank of d's train. Components are runs of DP ranks.
  std::vector<size_t> head = [&] {
    std::vector<size_t> ranks(dp_size);
    std::iota(ranks.begin(), ranks.end(), size_t{0});
    return ranks;
  }();
  for (const std::vector<Component>& components : micro_batches) {
    for (const Component& c : components) {
      const auto first = static_cast<size_t>(c.first_dp_rank);
      for (size_t d = first; d < first + static_cast<size_t>(c.dp_rank_count);
           ++d) {
        head[d] = std::min(head[d], first);
      }
    }
  }
  for (size_t d = 0; d < dp_size; ++d) head[d] = head[head[d]];

  std::vector<Train> trains(dp_size);  // at heads; others stay empty
  for (const size_t h : head) ++trains[h].ranks;
  for (const std::vector<Component>& components : micro_batches) {
    size_t last_head = dp_size;  // components come by DP rank
    for (const Component& c : components) {
      const auto first = static_cast<size_t>(c.first_dp_rank);
      const size_t h = head[first];
      if (h != last_head) trains[h].slots.emplace_back();
      last_head = h;
      trains[h].slots.back().push_back(
          {.first = first - h,
           .last = first - h + static_cast<size_t>(c.dp_rank_count),
           .seconds = {.forward = c.seconds / (1 + ratio),
                       .backward = c.seconds * ratio / (1 + ratio)}});
    }
  }
  PipelineFigures all;
  for (const Train& train : trains) {
    if (train.slots.empty()) continue;
    const PipelineFigures figures =
        Timetable(static_cast<size_t>(job.parallelism().pp_size), train,
                  Ascending(train.slots.size()))
            .Run();
    all.seconds = std::max(all.seconds, figures.seconds);
    all.busy += figures.busy;
  }
  return all;
}

}  // namespace skrull
