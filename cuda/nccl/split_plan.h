// Which ncclCommSplit calls make the communicators of a list of blocks.
#ifndef SKRULL_CUDA_NCCL_SPLIT_PLAN_H_
#define SKRULL_CUDA_NCCL_SPLIT_PLAN_H_

#include <span>
#include <vector>

#include "skrull/planner/layout.h"

namespace skrull::exec {

// Each inner list is one split of the pool: its blocks share no rank, and block
// i has color i. Every block comes once, in the first split that has room for
// it. Depends on the order of `blocks` alone, so that all ranks that announced
// the same list split alike. O(blocks^2).
inline std::vector<std::vector<Block>> PlanSplits(
    std::span<const Block> blocks) {
  const auto overlap = [](const Block& a, const Block& b) {
    return a.first_rank < b.first_rank + b.degree &&
           b.first_rank < a.first_rank + a.degree;
  };
  std::vector<std::vector<Block>> splits;
  for (const Block& block : blocks) {
    bool placed = false;
    for (std::vector<Block>& split : splits) {
      placed = true;
      for (const Block& other : split) {
        if (overlap(block, other)) placed = false;
      }
      if (placed) {
        split.push_back(block);
        break;
      }
    }
    if (!placed) splits.push_back({block});
  }
  return splits;
}

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_NCCL_SPLIT_PLAN_H_
