#include "skrull/cuda/rank_votes.h"

#include <cstddef>
#include <map>

namespace skrull::exec {

std::string DescribeDifference(int32_t first_rank,
                               const std::vector<std::string>& contributions) {
  std::map<std::string, int32_t> votes;
  for (const std::string& contribution : contributions) ++votes[contribution];
  if (votes.size() < 2) return "";
  size_t right = 0;
  for (size_t i = 1; i < contributions.size(); ++i) {
    if (votes[contributions[i]] > votes[contributions[right]]) right = i;
  }
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
