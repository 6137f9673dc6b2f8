#include "skrull/planner/optimizer/parts.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "skrull/planner/layout.h"
#include "skrull/planner/tournament_tree.h"

namespace skrull {
namespace {

// Below this many ranks a part balances noticeably worse: 32 is the paper's
// whole pool.
constexpr int32_t kPartRanks = 32;
// A construction looks at a slot in about 3 ns.
constexpr double kPartCost = 3e5;
// Of an average slot's time: a sequence above it is a long one.
constexpr double kLongShare = 0.25;

// The longest sequence that a block of at most `ranks` ranks holds.
int64_t LongestWithin(const Job& job, int64_t ranks) {
  int64_t longest = 0;
  for (const int32_t degree :
       AllowedDegrees(job.parallelism().block_scope, job.pool())) {
    if (degree > ranks) break;
    longest = std::max(longest, job.LongestOnDegree(degree));
  }
  return longest;
}

}  // namespace

double ConstructionCost(const Job& job, const CostModel& cost,
                        std::span<const int64_t> lengths, int64_t ranks) {
  int64_t tokens = 0;
  double work = 0;
  for (const int64_t length : lengths) {
    tokens += length;
    work += cost.Comp(length, 1).total();
  }
  const auto micro_batches =
      static_cast<double>(1 + tokens / (job.bucket_size() * ranks));
  const double slots = micro_batches * static_cast<double>(ranks);
  const auto long_ones =
      std::count_if(lengths.begin(), lengths.end(), [&](int64_t length) {
        return cost.Comp(length, 1).total() > kLongShare * work / slots;
      });
  return slots + static_cast<double>(lengths.size()) * micro_batches +
         static_cast<double>(long_ones) * slots;
}

std::vector<Part> SplitIntoParts(const Job& job, const CostModel& cost,
                                 std::span<const int64_t> lengths) {
  const PoolShape pool = job.pool();
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  double part_cost = ConstructionCost(job, cost, lengths, pool.ranks());
  int32_t dp_ranks = pool.dp_size;
  while (dp_ranks % 2 == 0 && part_cost > kPartCost) {
    const int64_t half = int64_t{dp_ranks / 2} * pool.cp_size;
    if (half < kPartRanks || LongestWithin(job, half) < longest) break;
    dp_ranks /= 2;
    part_cost /= 4;  // half the sequences on half the ranks
  }
  std::vector<Part> parts;
  for (int32_t d = 0; d < pool.dp_size; d += dp_ranks) {
    parts.push_back({d, dp_ranks, {}});
  }

  std::vector<int32_t> descending(lengths.size());
  std::iota(descending.begin(), descending.end(), 0);
  std::sort(descending.begin(), descending.end(), [&](int32_t a, int32_t b) {
    const int64_t x = lengths[static_cast<size_t>(a)];
    const int64_t y = lengths[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  TournamentTree<double, std::less<>> lightest(
      static_cast<int32_t>(parts.size()), 0.0);
  for (const int32_t k : descending) {
    const int32_t part = lightest.Best();
    parts[static_cast<size_t>(part)].descending.push_back(k);
    lightest.Set(
        part, lightest.key(part) + cost.Work(lengths[static_cast<size_t>(k)]));
  }
  return parts;
}

}  // namespace skrull
