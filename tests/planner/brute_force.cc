#include "skrull/tests/planner/brute_force.h"

#include <algorithm>

namespace skrull::testing {
namespace {

// Every way to put the sequences of `subset` on DP rank 0's group: each local
// to one rank or sharded. Calls visit(placements) for those that fit.
template <typename Visit>
void ForEachPlacement(const NaiveContract& contract, int32_t cp_size,
                      std::span<const int64_t> lengths, uint32_t subset,
                      std::vector<SequencePlacement>& placements,
                      const Visit& visit) {
  if (subset == 0) {
    if (contract.Fits(placements)) visit(placements);
    return;
  }
  int32_t sequence = 0;
  while ((subset >> sequence & 1u) == 0) ++sequence;
  const auto tokens =
      static_cast<int32_t>(lengths[static_cast<size_t>(sequence)]);
  const uint32_t rest = subset & (subset - 1);
  // Ranks are not alike: the first ones hold the odd rows of what is sharded.
  for (int32_t rank = 0; rank < cp_size; ++rank) {
    placements.push_back({sequence, tokens, rank, 1});
    ForEachPlacement(contract, cp_size, lengths, rest, placements, visit);
    placements.pop_back();
  }
  if (cp_size > 1) {
    placements.push_back({sequence, tokens, 0, cp_size});
    ForEachPlacement(contract, cp_size, lengths, rest, placements, visit);
    placements.pop_back();
  }
}

// [subset]: least SlowestRank() of the subset as one micro-batch.
std::vector<double> SlowestRankOfSubsets(const JobSpec& spec,
                                         std::span<const int64_t> lengths) {
  const NaiveContract contract(spec);
  std::vector<double> best(size_t{1} << lengths.size(), kNoPlan);
  best[0] = 0;
  std::vector<SequencePlacement> placements;
  for (uint32_t subset = 1; subset < best.size(); ++subset) {
    ForEachPlacement(contract, spec.parallelism.cp_size, lengths, subset,
                     placements, [&](std::span<const SequencePlacement> p) {
                       best[subset] =
                           std::min(best[subset], contract.SlowestRank(p));
                     });
  }
  return best;
}

// [count][subset]: least sum of `of_subset` over partitions of the subset into
// at most `count` micro-batches.
std::vector<std::vector<double>> BestPartitions(
    const std::vector<double>& of_subset, size_t most) {
  std::vector<std::vector<double>> best(
      most + 1, std::vector<double>(of_subset.size(), kNoPlan));
  best[0][0] = 0;
  for (size_t count = 1; count <= most; ++count) {
    best[count] = best[count - 1];
    for (uint32_t subset = 1; subset < of_subset.size(); ++subset) {
      for (uint32_t part = subset; part != 0; part = (part - 1) & subset) {
        best[count][subset] =
            std::min(best[count][subset],
                     of_subset[part] + best[count - 1][subset ^ part]);
      }
    }
  }
  return best;
}

}  // namespace

double BestGroupSeconds(const JobSpec& spec, std::span<const int64_t> lengths) {
  const size_t k = lengths.size();
  const double overhead = spec.cost.seconds_per_micro_batch;
  const bool uniform = spec.parallelism.uniform_micro_batch_count;
  std::vector<double> seconds = SlowestRankOfSubsets(spec, lengths);
  if (!uniform) {
    for (size_t subset = 1; subset < seconds.size(); ++subset) {
      seconds[subset] += overhead;
    }
  }
  const std::vector<std::vector<double>> best = BestPartitions(seconds, k);
  const auto all = static_cast<uint32_t>(seconds.size() - 1);
  double least = kNoPlan;
  for (size_t count = 1; count <= k; ++count) {
    const double empty_slots =
        uniform ? overhead * static_cast<double>(count) : 0;
    for (uint32_t first = 0; first <= all; ++first) {
      if (spec.parallelism.dp_size == 1 && first != all) continue;
      least = std::min(least, empty_slots + std::max(best[count][first],
                                                     best[count][all ^ first]));
    }
  }
  return least;
}

double BestSeconds(const JobSpec& spec, std::span<const int64_t> lengths) {
  const NaiveContract contract(spec);
  const size_t k = lengths.size();
  const size_t choices = k * contract.blocks().size();
  std::vector<size_t> choice(k, 0);
  double least = kNoPlan;
  for (bool more = true; more;) {
    std::vector<std::vector<SequencePlacement>> micro_batches(k);
    for (size_t i = 0; i < k; ++i) {
      const Block& b = contract.blocks()[choice[i] / k];
      micro_batches[choice[i] % k].push_back({static_cast<int32_t>(i),
                                              static_cast<int32_t>(lengths[i]),
                                              b.first_rank, b.degree});
    }
    std::erase_if(micro_batches, [](const auto& mb) { return mb.empty(); });
    if (std::all_of(micro_batches.begin(), micro_batches.end(),
                    [&](const auto& mb) { return contract.Fits(mb); })) {
      least = std::min(least, contract.StepSeconds(micro_batches));
    }
    more = false;
    for (size_t i = 0; i < k && !more; ++i) {
      choice[i] = (choice[i] + 1) % choices;
      more = choice[i] != 0;
    }
  }
  return least;
}

}  // namespace skrull::testing
