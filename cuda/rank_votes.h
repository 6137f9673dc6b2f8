// Who is out of step, when ranks should all have brought the same.
#ifndef SKRULL_CUDA_RANK_VOTES_H_
#define SKRULL_CUDA_RANK_VOTES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace skrull::exec {

// Empty if all are equal. Else "ranks differ: rank 0 came with X, rank 2 with
// Y": the most common contribution counts as right, the lowest rank's if
// several are as common, and is named first. Entry i is of rank `first_rank` +
// i.
std::string DescribeDifference(int32_t first_rank,
                               const std::vector<std::string>& contributions);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_RANK_VOTES_H_
