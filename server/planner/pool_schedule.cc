#include "skrull/planner/pool_schedule.h"

#include <algorithm>
#include <utility>

namespace skrull {

PoolSchedule::PoolSchedule(const Job& job, std::span<const int64_t> lengths)
    : job_(job),
      lengths_(lengths),
      longest_on_group_(std::max(job.LongestOnDegree(1),
                                 job.LongestOnDegree(job.pool().cp_size))),
      next_(static_cast<size_t>(job.pool().dp_size), 0) {}

std::vector<int32_t> PoolSchedule::Outliers() const {
  std::vector<int32_t> outliers;
  for (int32_t k = 0; k < std::ssize(lengths_); ++k) {
    if (IsOutlier(lengths_[static_cast<size_t>(k)])) outliers.push_back(k);
  }
  std::stable_sort(outliers.begin(), outliers.end(), [&](int32_t a, int32_t b) {
    return lengths_[static_cast<size_t>(a)] > lengths_[static_cast<size_t>(b)];
  });
  return outliers;
}

std::vector<SequencePlacement> PoolSchedule::PlaceOutliers(
    std::span<const int32_t> outliers) {
  const BlockScope scope = job_.parallelism().block_scope;
  const PoolShape pool = job_.pool();
  const std::vector<int32_t> degrees = AllowedDegrees(scope, pool);
  std::vector<int64_t> longest;
  for (const int32_t degree : degrees) {
    longest.push_back(job_.LongestOnDegree(degree));
  }
  std::vector<SequencePlacement> placements;
  int32_t cursor = pool.ranks();  // ranks of the last micro-batch before it
  for (const int32_t sequence : outliers) {
    const int64_t tokens = lengths_[static_cast<size_t>(sequence)];
    size_t i = 0;
    while (longest[i] < tokens) ++i;
    // Blocks come largest first, so the cursor stays aligned; where it does
    // not, or the pool is full, the next micro-batch begins.
    if (!IsAllowedBlock(scope, pool, {cursor, degrees[i]})) {
      cursor = 0;
      micro_batches_.emplace_back();
      taken_.emplace_back(next_.size(), char{0});
    }
    placements.push_back({.sequence = sequence,
                          .token_count = static_cast<int32_t>(tokens),
                          .first_rank = cursor,
                          .degree = degrees[i]});
    micro_batches_.back().placements.push_back(placements.back());
    const int32_t end = cursor + degrees[i];
    for (int32_t d = cursor / pool.cp_size; d * pool.cp_size < end; ++d) {
      taken_.back()[static_cast<size_t>(d)] = 1;
    }
    cursor = end;
  }
  return placements;
}

int64_t PoolSchedule::Append(int32_t dp_rank,
                             std::vector<SequencePlacement> placements) {
  size_t& next = next_[static_cast<size_t>(dp_rank)];
  while (next < taken_.size() && taken_[next][static_cast<size_t>(dp_rank)]) {
    ++next;
  }
  if (next >= micro_batches_.size()) micro_batches_.resize(next + 1);
  std::vector<SequencePlacement>& all = micro_batches_[next].placements;
  if (all.empty()) {
    all = std::move(placements);
  } else {
    all.insert(all.end(), placements.begin(), placements.end());
  }
  return static_cast<int64_t>(next++);
}

std::vector<MicroBatchPlan> PoolSchedule::Take() {
  for (MicroBatchPlan& micro_batch : micro_batches_) {
    std::sort(micro_batch.placements.begin(), micro_batch.placements.end(),
              [](const SequencePlacement& a, const SequencePlacement& b) {
                return a.sequence < b.sequence;
              });
  }
  taken_.clear();
  std::fill(next_.begin(), next_.end(), size_t{0});
  return std::move(micro_batches_);
}

}  // namespace skrull
