// Who is out of step, when ranks should all have brought the same.
#ifndef SKRULL_CUDA_RANK_VOTES_H_
#define SKRULL_CUDA_RANK_VOTES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace skrull::exec {

// Index of the most common value, the first of those; 0 if there are none.
template <class T>
size_t MostCommon(std::span<const T> values) {
  std::map<T, size_t> votes;
  for (const T& value : values) ++votes[value];
  size_t most = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    if (votes[values[i]] > votes[values[most]]) most = i;
  }
  return most;
}

// Empty if all are equal. Else "ranks differ: rank 0 came with X, rank 2 with
// Y": the most common contribution counts as right, the lowest rank's if
// several are as common, and is named first. Entry i is of rank `first_rank` +
// i.
std::string DescribeDifference(int32_t first_rank,
                               const std::vector<std::string>& contributions);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_RANK_VOTES_H_
