#include "skrull/planner/gds.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "skrull/planner/length_order.h"
#include "skrull/planner/placement.h"
#include "skrull/planner/pool_schedule.h"
#include "skrull/planner/tournament_tree.h"

namespace skrull {
namespace {

// How often the count of micro-batches grows by one, as in the listing, after
// DACP refused a split, before it grows by a quarter: bounds the number of
// O(K) tries to 16 + log_1.25(K), about 70 for a million sequences.
constexpr int kSingleSteps = 16;

// A DP rank's micro-batches: sequence indices, each ascending by length.
using Split = std::vector<std::vector<int32_t>>;

// Splits one DP rank's sequences into micro-batches.
class Splitter {
 public:
  Splitter(const Job& job, std::span<const int64_t> lengths)
      : lengths_(lengths),
        group_tokens_(job.bucket_size() * job.pool().cp_size),
        max_sequences_(job.max_sequences_per_micro_batch()) {}

  // `subset` ascending by length; must outlive the next calls.
  void Start(std::span<const int32_t> subset) {
    subset_ = subset;
    packed_.reset();
    int64_t tokens = 0;
    for (const int32_t k : subset) tokens += length(k);
    const auto count = static_cast<int64_t>(subset.size());
    least_ = std::max((tokens + group_tokens_ - 1) / group_tokens_,
                      (count + max_sequences_ - 1) / max_sequences_);
  }

  // No split of fewer micro-batches fits.
  int64_t least_count() const { return least_; }

  // A split into `count` micro-batches whose tokens fit their groups: strided
  // if that fits, else packed, if that takes just `count`; nullopt if neither.
  std::optional<Split> Try(int64_t count) {
    if (StridedFits(count)) return Strided(count);
    if (!packed_) packed_ = FirstFitDecreasing();
    if (static_cast<int64_t>(packed_->size()) == count) return packed_;
    return std::nullopt;
  }

 private:
  int64_t length(int32_t k) const { return lengths_[static_cast<size_t>(k)]; }

  // subset[first::stride], as the listing slices it.
  template <typename Visit>
  void Slice(int64_t first, int64_t stride, Visit visit) const {
    for (auto i = first; i < std::ssize(subset_); i += stride) {
      visit(subset_[static_cast<size_t>(i)]);
    }
  }

  // Lengths ascend, so of the slices with as many sequences the last one holds
  // the most tokens: two slices decide. O(K / count).
  bool StridedFits(int64_t count) const {
    const auto tokens = [&](int64_t first) {
      int64_t sum = 0;
      Slice(first, count, [&](int32_t k) { sum += length(k); });
      return sum;
    };
    const int64_t longer = std::ssize(subset_) % count;
    return tokens(count - 1) <= group_tokens_ &&
           (longer == 0 || tokens(longer - 1) <= group_tokens_);
  }

  Split Strided(int64_t count) const {
    Split split(static_cast<size_t>(count));
    for (int64_t j = 0; j < count; ++j) {
      Slice(j, count,
            [&](int32_t k) { split[static_cast<size_t>(j)].push_back(k); });
    }
    return split;
  }

  // Fewest micro-batches by first-fit decreasing. O(K log K).
  Split FirstFitDecreasing() const {
    TournamentTree<int64_t, std::greater<>> room(
        static_cast<int32_t>(subset_.size()), group_tokens_);
    Split split;
    for (auto it = subset_.rbegin(); it != subset_.rend(); ++it) {
      // At most one bin a sequence, so there always is one.
      const int32_t bin = room.FirstNotWorse(length(*it));
      const auto b = static_cast<size_t>(bin);
      if (b == split.size()) split.emplace_back();
      split[b].push_back(*it);
      const bool full = std::ssize(split[b]) == max_sequences_;
      room.Set(bin, full ? -1 : room.key(bin) - length(*it));
    }
    for (std::vector<int32_t>& bin : split) {
      std::reverse(bin.begin(), bin.end());
    }
    return split;
  }

  std::span<const int64_t> lengths_;
  int64_t group_tokens_;
  int64_t max_sequences_;
  std::span<const int32_t> subset_;
  int64_t least_ = 0;
  std::optional<Split> packed_;
};

// Every micro-batch of the split placed; nullopt if one is refused.
std::optional<GroupSchedule> PlaceSplit(Split split, int32_t first_rank,
                                        const DacpOptions& options,
                                        Placement& placement) {
  GroupSchedule schedule(first_rank);
  for (std::vector<int32_t>& sequences : split) {
    if (options.local_rule == LocalRule::kEmptiest) {
      std::sort(sequences.begin(), sequences.end());  // batch order
    }
    if (RunDacp(sequences, placement, options) ==
        DacpVerdict::kNeedsMoreMicroBatches) {
      return std::nullopt;
    }
    schedule.Add(placement);
  }
  return schedule;
}

// Alg. 2's inner loop for one DP rank: the fewest micro-batches found to fit;
// nullopt if those are more than `max_count`.
std::optional<GroupSchedule> ScheduleGroup(
    std::span<const int32_t> subset, int32_t first_rank, int64_t max_count,
    const DacpOptions& options, Splitter& splitter, Placement& placement) {
  splitter.Start(subset);
  // Each sequence alone: that always fits, so the loop ends there at the
  // latest.
  const int64_t most = std::ssize(subset);
  int refusals = 0;
  for (int64_t count = splitter.least_count(); count <= max_count;) {
    if (std::optional<Split> split = splitter.Try(count)) {
      std::optional<GroupSchedule> schedule =
          PlaceSplit(*std::move(split), first_rank, options, placement);
      if (schedule) return schedule;
      ++refusals;
    }
    count += refusals <= kSingleSteps ? 1 : std::max<int64_t>(1, count / 4);
    count = std::min(count, most);
  }
  return std::nullopt;
}

// Longest-processing-time first by work: sequences of each DP rank, ascending
// by length. `load` is work already there, per DP rank.
std::vector<std::vector<int32_t>> BalanceOverDpRanks(
    std::span<const int32_t> ascending, std::span<const double> work,
    std::span<const double> load) {
  TournamentTree<double, std::less<>> lightest(
      static_cast<int32_t>(load.size()), 0.0);
  for (size_t d = 0; d < load.size(); ++d) {
    lightest.Set(static_cast<int32_t>(d), load[d]);
  }
  std::vector<std::vector<int32_t>> subsets(load.size());
  for (auto it = ascending.rbegin(); it != ascending.rend(); ++it) {
    const int32_t d = lightest.Best();
    lightest.Set(d, lightest.key(d) + work[static_cast<size_t>(*it)]);
    subsets[static_cast<size_t>(d)].push_back(*it);
  }
  for (std::vector<int32_t>& subset : subsets) {
    std::reverse(subset.begin(), subset.end());
  }
  return subsets;
}

}  // namespace

std::optional<GdsResult> RunGds(const Job& job, const CostModel& cost,
                                std::span<const int64_t> lengths,
                                int64_t max_micro_batches,
                                const DacpOptions& options) {
  const int32_t cp_size = job.pool().cp_size;
  std::vector<int32_t> ascending(lengths.size());
  std::iota(ascending.begin(), ascending.end(), 0);
  std::sort(ascending.begin(), ascending.end(), ShorterFirst{lengths});
  std::vector<double> work(lengths.size());
  for (size_t k = 0; k < work.size(); ++k) work[k] = cost.Work(lengths[k]);

  PoolSchedule pool(job, lengths);
  const auto first_outlier =
      std::partition_point(ascending.begin(), ascending.end(), [&](int32_t k) {
        return !pool.IsOutlier(lengths[static_cast<size_t>(k)]);
      });
  const std::vector<int32_t> outliers(
      ascending.rbegin(), std::make_reverse_iterator(first_outlier));
  ascending.erase(first_outlier, ascending.end());

  std::vector<double> load(static_cast<size_t>(job.pool().dp_size), 0.0);
  for (const SequencePlacement& p : pool.PlaceOutliers(outliers)) {
    const double share =
        work[static_cast<size_t>(p.sequence)] * cp_size / p.degree;
    for (int32_t r = p.first_rank; r < p.first_rank + p.degree; r += cp_size) {
      load[static_cast<size_t>(r / cp_size)] += share;
    }
  }

  GdsResult result;
  Splitter splitter(job, lengths);
  Placement placement(job, lengths, work);
  const std::vector<std::vector<int32_t>> subsets =
      BalanceOverDpRanks(ascending, work, load);
  for (int32_t d = 0; d < job.pool().dp_size; ++d) {
    const std::vector<int32_t>& subset = subsets[static_cast<size_t>(d)];
    if (subset.empty()) continue;
    std::optional<GroupSchedule> schedule = ScheduleGroup(
        subset, d * cp_size, max_micro_batches, options, splitter, placement);
    if (!schedule) return std::nullopt;
    schedule->MoveTo(d, pool, result);
  }
  result.micro_batches = pool.Take();
  return result;
}

}  // namespace skrull
