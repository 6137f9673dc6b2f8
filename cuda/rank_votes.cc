#include "skrull/cuda/rank_votes.h"

#include <algorithm>
#include <cstddef>
#include <functional>

#include "skrull/planner/plan_digest.h"

namespace skrull::exec {

std::string DescribeDifference(int32_t first_rank,
                               const std::vector<std::string>& contributions) {
  if (std::ranges::adjacent_find(contributions, std::ranges::not_equal_to()) ==
      contributions.end()) {
    return "";
  }
  const size_t right = MostCommon<std::string>(contributions);
  const auto name = [&](size_t i) {
    return "rank " + std::to_string(first_rank + static_cast<int32_t>(i));
  };
  std::string text =
      "ranks differ: " + name(right) + " came with " + contributions[right];
  for (size_t i = 0; i < contributions.size(); ++i) {
    if (contributions[i] == contributions[right]) continue;
    text += ", " + name(i) + " with " + contributions[i];
  }
  return text;
}

}  // namespace skrull::exec
