#include "skrull/planner/baselines/static_cp.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "skrull/planner/layout.h"
#include "skrull/planner/length_order.h"
#include "skrull/planner/pool_schedule.h"

namespace skrull {
namespace {

// One DP rank's micro-batch in the making: what it holds sharded, or the one
// sequence that had to be local.
class GroupPacker {
 public:
  GroupPacker(const Job& job, int32_t dp_rank, int64_t max_sequences,
              PoolSchedule& pool)
      : job_(job),
        dp_rank_(dp_rank),
        max_sequences_(max_sequences),
        pool_(pool) {}

  void Add(int32_t sequence, int64_t tokens) {
    const int32_t cp_size = job_.pool().cp_size;
    const bool shardable = FitsSharded(tokens);
    if (!shardable || !FitsSharded(sharded_tokens_ + tokens) ||
        std::ssize(placements_) >= max_sequences_) {
      Flush();
    }
    placements_.push_back({.sequence = sequence,
                           .token_count = static_cast<int32_t>(tokens),
                           .first_rank = dp_rank_ * cp_size,
                           .degree = shardable ? cp_size : 1});
    sharded_tokens_ += tokens;
    if (!shardable) Flush();
  }

  // Hands the micro-batch over, if it holds anything.
  void Flush() {
    if (placements_.empty()) return;
    pool_.Append(dp_rank_, std::exchange(placements_, {}));
    sharded_tokens_ = 0;
  }

 private:
  // On a group of one rank "sharded" is local, and nothing is gathered.
  bool FitsSharded(int64_t tokens) const {
    const int32_t cp_size = job_.pool().cp_size;
    return job_.FitsRank(MaxBlockRows(tokens, cp_size),
                         cp_size == 1 ? 0 : tokens);
  }

  const Job& job_;
  int32_t dp_rank_;
  int64_t max_sequences_;
  PoolSchedule& pool_;
  std::vector<SequencePlacement> placements_;
  int64_t sharded_tokens_ = 0;
};

// The batch's indices in batch order.
std::vector<int32_t> BatchOrder(std::span<const int64_t> lengths) {
  std::vector<int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// `order` is dealt to the DP ranks in turn; each runs its share in that order.
std::vector<MicroBatchPlan> Schedule(const Job& job,
                                     std::span<const int64_t> lengths,
                                     std::span<const int32_t> order,
                                     int64_t max_sequences) {
  const auto length = [&](int32_t k) {
    return lengths[static_cast<size_t>(k)];
  };
  PoolSchedule pool(job, lengths);
  pool.PlaceOutliers(pool.Outliers());

  const int32_t dp_size = job.pool().dp_size;
  for (int32_t d = 0; d < dp_size; ++d) {
    GroupPacker packer(job, d, max_sequences, pool);
    for (int64_t i = d; i < std::ssize(order); i += dp_size) {
      const int32_t sequence = order[static_cast<size_t>(i)];
      if (pool.IsOutlier(length(sequence))) continue;
      packer.Add(sequence, length(sequence));
    }
    packer.Flush();
  }
  return pool.Take();
}

}  // namespace

std::vector<MicroBatchPlan> ScheduleStaticCp(const Job& job,
                                             std::span<const int64_t> lengths) {
  return Schedule(job, lengths, BatchOrder(lengths), 1);
}

std::vector<MicroBatchPlan> SchedulePackedStaticCp(
    const Job& job, std::span<const int64_t> lengths) {
  return Schedule(job, lengths, BatchOrder(lengths),
                  job.max_sequences_per_micro_batch());
}

std::vector<MicroBatchPlan> ScheduleSortedStaticCp(
    const Job& job, std::span<const int64_t> lengths) {
  std::vector<int32_t> order = BatchOrder(lengths);
  std::sort(order.begin(), order.end(), ShorterFirst{lengths});
  return Schedule(job, lengths, order, 1);
}

}  // namespace skrull
