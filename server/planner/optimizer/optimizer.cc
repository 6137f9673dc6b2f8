#include "skrull/planner/optimizer/optimizer.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "skrull/planner/baselines/static_cp.h"
#include "skrull/planner/gds.h"
#include "skrull/planner/optimizer/branch_and_bound.h"
#include "skrull/planner/optimizer/part_search.h"
#include "skrull/planner/optimizer/parts.h"
#include "skrull/planner/pipeline/order.h"

namespace skrull {
namespace {

// Of all parts together: each takes about a second. A batch that exceeds the
// first is left to the other policies' plans; a larger search_steps is cut.
constexpr double kMostConstructionCost = 3e7;
constexpr int64_t kMostSearchSteps = 10'000'000;

// Nodes of branch and bound that one of the job's search_steps pays for.
constexpr int64_t kNodesPerStep = 100;

// The parts' micro-batches side by side; empty if some part has none.
std::vector<MicroBatchPlan> SearchParts(const Job& job, const CostModel& cost,
                                        std::span<const int64_t> lengths) {
  const std::vector<Part> parts = SplitIntoParts(job, cost, lengths);
  const auto count = std::ssize(parts);
  const SearchLimits limits{
      .construction_cost = kMostConstructionCost / static_cast<double>(count),
      .search_steps = std::min(job.search_steps(), kMostSearchSteps / count)};
  std::vector<MicroBatchPlan> all;
  for (const Part& part : parts) {
    if (part.descending.empty()) continue;
    const std::vector<MicroBatchPlan> found =
        SearchPart(job, cost, lengths, part, limits);
    if (found.empty()) return {};
    all.resize(std::max(all.size(), found.size()));
    for (size_t i = 0; i < found.size(); ++i) {
      all[i].placements.insert(all[i].placements.end(),
                               found[i].placements.begin(),
                               found[i].placements.end());
    }
  }
  std::erase_if(all, [](const MicroBatchPlan& micro_batch) {
    return micro_batch.placements.empty();
  });
  for (MicroBatchPlan& micro_batch : all) {
    std::sort(micro_batch.placements.begin(), micro_batch.placements.end(),
              [](const SequencePlacement& a, const SequencePlacement& b) {
                return a.sequence < b.sequence;
              });
  }
  return all;
}

}  // namespace

OptimizerResult RunOptimizer(const Job& job, const CostModel& cost,
                             std::span<const int64_t> lengths,
                             int64_t max_micro_batches) {
  OptimizerResult best;
  StepSeconds least{std::numeric_limits<double>::infinity(), 0};
  const auto offer = [&](std::vector<MicroBatchPlan> micro_batches,
                         int64_t roll_backs) {
    if (micro_batches.empty() ||
        std::ssize(micro_batches) > max_micro_batches) {
      return;
    }
    const StepSeconds seconds = OrderMicroBatches(job, cost, &micro_batches);
    if (seconds >= least) return;
    least = seconds;
    best = {std::move(micro_batches), roll_backs};
  };
  offer(SearchParts(job, cost, lengths), 0);
  std::optional<GdsResult> gds = RunGds(job, cost, lengths, max_micro_batches);
  if (gds) offer(std::move(gds->micro_batches), gds->roll_back_count);
  offer(SchedulePackedStaticCp(job, lengths), 0);
  if (std::ssize(lengths) / job.pool().dp_size < max_micro_batches) {
    offer(ScheduleStaticCp(job, lengths), 0);
  }
  if (std::ssize(lengths) <= kMostSearchedSequences &&
      job.pool().ranks() <= kMostSearchedRanks) {
    const int64_t nodes =
        kNodesPerStep * std::min(job.search_steps(), kMostSearchSteps);
    offer(BranchAndBound(job, cost, lengths, least.predicted, nodes), 0);
  }
  return best;
}

}  // namespace skrull
