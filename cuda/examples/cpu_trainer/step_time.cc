#include "skrull/cuda/examples/cpu_trainer/step_time.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace skrull::examples {
namespace {

// Lowest DP rank of each one's component in micro-batch `index`.
std::vector<size_t> Components(const std::vector<RankPlan>& plans, size_t index,
                               size_t cp_size) {
  std::vector<size_t> component(plans.size() / cp_size);
  std::iota(component.begin(), component.end(), size_t{0});
  for (const RankPlan& plan : plans) {
    for (const RankSegment& segment : plan.micro_batches[index].segments) {
      const auto first = static_cast<size_t>(segment.block.first_rank);
      const auto last = first + static_cast<size_t>(segment.block.degree) - 1;
      for (size_t d = first / cp_size; d <= last / cp_size; ++d) {
        const size_t low = std::min(component[first / cp_size], component[d]);
        const size_t high = std::max(component[first / cp_size], component[d]);
        std::replace(component.begin(), component.end(), high, low);
      }
    }
  }
  return component;
}

}  // namespace

double StepSeconds(const std::vector<RankPlan>& plans,
                   const std::vector<std::vector<RankSeconds>>& seconds,
                   int32_t cp_size) {
  const auto cp = static_cast<size_t>(cp_size);
  const size_t dp_size = plans.size() / cp;
  std::vector<double> ready(dp_size);
  for (size_t i = 0; i < plans[0].micro_batches.size(); ++i) {
    const std::vector<size_t> component = Components(plans, i, cp);
    std::vector<double> start(dp_size), longest(dp_size);
    for (size_t d = 0; d < dp_size; ++d) {
      start[component[d]] = std::max(start[component[d]], ready[d]);
      for (size_t r = d * cp; r < (d + 1) * cp; ++r) {
        // A DP rank with nothing to do in it skips it.
        if (plans[r].micro_batches[i].segments.empty()) continue;
        longest[component[d]] =
            std::max(longest[component[d]], seconds[r][i].overlapped());
      }
    }
    for (size_t d = 0; d < dp_size; ++d) {
      ready[d] = start[component[d]] + longest[component[d]];
    }
  }
  return *std::max_element(ready.begin(), ready.end());
}

}  // namespace skrull::examples
