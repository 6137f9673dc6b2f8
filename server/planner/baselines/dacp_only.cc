#include "skrull/planner/baselines/dacp_only.h"

#include <algorithm>
#include <vector>

#include "skrull/planner/length_order.h"
#include "skrull/planner/placement.h"
#include "skrull/planner/pool_schedule.h"

namespace skrull {
namespace {

// Cuts one DP rank's sequences, in arrival order, into micro-batches.
class ArrivalPacker {
 public:
  ArrivalPacker(const Job& job, std::span<const int64_t> lengths,
                const DacpOptions& options, Placement& placement)
      : lengths_(lengths),
        options_(options),
        group_tokens_(job.bucket_size() * job.pool().cp_size),
        max_sequences_(job.max_sequences_per_micro_batch()),
        may_refuse_(options.roll_back && job.models_gather()),
        placement_(placement) {}

  // `arrivals` must outlive the next calls.
  void Start(std::span<const int32_t> arrivals) {
    arrivals_ = arrivals;
    next_ = 0;
    tokens_before_.assign(1, 0);
    for (const int32_t k : arrivals) {
      tokens_before_.push_back(tokens_before_.back() +
                               lengths_[static_cast<size_t>(k)]);
    }
  }

  bool done() const { return next_ == std::ssize(arrivals_); }

  // Places the next micro-batch. REQUIRES: !done(), and each sequence fits the
  // group alone.
  void PlaceNext() {
    const int64_t most = MostByTokens();
    // Where nothing is refused the first try is the last. Else by doubling, so
    // that a try costs no more than a few times what it places, then by halves.
    int64_t placed = 0;
    int64_t refused = most + 1;
    int64_t count = may_refuse_ ? 1 : most;
    while (true) {
      (TryPlace(count) ? placed : refused) = count;
      if (placed + 1 >= refused) break;
      count = std::max<int64_t>(
          1, std::min(2 * placed, placed + (refused - placed) / 2));
    }
    if (count != placed) TryPlace(placed);
    next_ += placed;
  }

 private:
  // The most sequences from next_ on that the group's tokens and the cap allow;
  // one at least.
  int64_t MostByTokens() const {
    const auto from = tokens_before_.begin() + next_;
    const auto end =
        std::upper_bound(from, tokens_before_.end(), *from + group_tokens_);
    return std::min<int64_t>(end - from - 1, max_sequences_);
  }

  bool TryPlace(int64_t count) {
    const auto from = arrivals_.begin() + next_;
    ascending_.assign(from, from + count);
    std::sort(ascending_.begin(), ascending_.end(), ShorterFirst{lengths_});
    return RunDacp(ascending_, placement_, options_) !=
           DacpVerdict::kNeedsMoreMicroBatches;
  }

  std::span<const int64_t> lengths_;
  DacpOptions options_;
  int64_t group_tokens_;
  int64_t max_sequences_;
  bool may_refuse_;  // DACP may refuse what the group's tokens allow
  Placement& placement_;
  std::span<const int32_t> arrivals_;
  std::vector<int64_t> tokens_before_;  // [i]: in arrivals_[0, i)
  int64_t next_ = 0;                    // first of arrivals_ not yet placed
  std::vector<int32_t> ascending_;      // of the micro-batch tried last
};

}  // namespace

std::optional<HeuristicSchedule> ScheduleDacpOnly(
    const Job& job, const CostModel& cost, std::span<const int64_t> lengths,
    int64_t max_micro_batches, const DacpOptions& options) {
  std::vector<double> work(lengths.size());
  for (size_t k = 0; k < work.size(); ++k) work[k] = cost.Work(lengths[k]);
  PoolSchedule pool(job, lengths);
  pool.PlaceOutliers(pool.Outliers());

  HeuristicSchedule result;
  Placement placement(job, lengths, work);
  ArrivalPacker packer(job, lengths, options, placement);
  const int32_t dp_size = job.pool().dp_size;
  std::vector<int32_t> arrivals;
  for (int32_t d = 0; d < dp_size; ++d) {
    arrivals.clear();
    for (int64_t k = d; k < std::ssize(lengths); k += dp_size) {
      if (pool.IsOutlier(lengths[static_cast<size_t>(k)])) continue;
      arrivals.push_back(static_cast<int32_t>(k));
    }
    GroupSchedule schedule(d * job.pool().cp_size);
    for (packer.Start(arrivals); !packer.done();) {
      if (schedule.size() == max_micro_batches) return std::nullopt;
      packer.PlaceNext();
      schedule.Add(placement);
    }
    schedule.MoveTo(d, pool, result);
  }
  result.micro_batches = pool.Take();
  return result;
}

}  // namespace skrull
