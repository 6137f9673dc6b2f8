// From micro-batches of single DP ranks to micro-batches of the pool.
//
// The paper's policies think per DP rank: each has its own list of
// micro-batches on its own CP group. A plan's micro-batch spans the pool, and
// sequences that no CP group holds take blocks across DP ranks. PoolSchedule
// joins the two.
#ifndef SKRULL_SERVER_PLANNER_POOL_SCHEDULE_H_
#define SKRULL_SERVER_PLANNER_POOL_SCHEDULE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/plan.h"

namespace skrull {

// Build by PlaceOutliers() once, then Append() for each DP rank's micro-batches
// in the order they run. Not thread-safe. `job` and `lengths` must outlive it.
class PoolSchedule {
 public:
  PoolSchedule(const Job& job, std::span<const int64_t> lengths);

  // True if no single CP group holds the sequence, whole or sharded. O(1).
  bool IsOutlier(int64_t tokens) const { return tokens > longest_on_group_; }

  // The batch's outliers by descending length, equal ones in batch order.
  // O(K log K).
  std::vector<int32_t> Outliers() const;

  // Places outliers on the smallest blocks that hold them, as few micro-batches
  // as blocks side by side give, and returns them in `outlier` order. Takes the
  // batch's outlier indices by descending length. Call at most once, before
  // any Append. REQUIRES: each is placeable. O(outliers).
  std::vector<SequencePlacement> PlaceOutliers(
      std::span<const int32_t> outliers);

  // Appends a micro-batch of one DP rank, in the first micro-batch of the pool
  // where that DP rank is free; returns that one's index. Placements are on the
  // DP rank's CP group.
  int64_t Append(int32_t dp_rank, std::vector<SequencePlacement> placements);

  // The plan's micro-batches, each with its placements by sequence index. The
  // schedule is empty afterwards.
  std::vector<MicroBatchPlan> Take();

 private:
  const Job& job_;
  std::span<const int64_t> lengths_;
  int64_t longest_on_group_;
  std::vector<MicroBatchPlan> micro_batches_;
  // [micro-batch][DP rank], of the micro-batches that hold outliers: taken.
  std::vector<std::vector<char>> taken_;
  std::vector<size_t> next_;  // per DP rank: its first free micro-batch
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_POOL_SCHEDULE_H_
