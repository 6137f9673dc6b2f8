#include "skrull/server/committed_plan.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "skrull/planner/error.h"
#include "skrull/planner/layout.h"
#include "skrull/server/convert.h"

namespace skrull {

CommittedPlan::CommittedPlan(Plan plan, std::string digest, PlanRecord record)
    : plan_(std::move(plan)),
      digest_(std::move(digest)),
      record_(std::move(record)) {
  for (const MicroBatchPlan& micro_batch : plan_.micro_batches) {
    token_count_ += micro_batch.token_count;
    first_degree_.push_back(static_cast<int32_t>(degrees_.size()));
    const std::vector<SequencePlacement>& placements = micro_batch.placements;
    const size_t base = order_.size();
    order_.resize(base + placements.size());
    const std::span<int32_t> order = std::span(order_).subspan(base);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const SequencePlacement& x = placements[static_cast<size_t>(a)];
      const SequencePlacement& y = placements[static_cast<size_t>(b)];
      return std::tie(x.degree, x.first_rank, a) <
             std::tie(y.degree, y.first_rank, b);
    });
    for (size_t i = 0; i < order.size(); ++i) {
      const Block block = placements[static_cast<size_t>(order[i])].block();
      const bool first = i == 0;
      if (first || degrees_.back().degree != block.degree) {
        const auto at = static_cast<int32_t>(groups_.size());
        degrees_.push_back({block.degree, at, at});
      }
      if (first || groups_.back().block != block) {
        const auto at = static_cast<int32_t>(base + i);
        groups_.push_back({block, at, at});
        ++degrees_.back().end;
      }
      ++groups_.back().end;
    }
  }
  first_degree_.push_back(static_cast<int32_t>(degrees_.size()));
}

std::shared_ptr<const CommittedPlan> CommittedPlan::Make(Plan plan,
                                                         std::string digest,
                                                         PlanRecord record) {
  return std::shared_ptr<const CommittedPlan>(
      new CommittedPlan(std::move(plan), std::move(digest), std::move(record)));
}

absl::StatusOr<std::shared_ptr<const CommittedPlan>> CommittedPlan::Decode(
    PlanRecord record) {
  v1::Plan message;
  const bool parsed = message.ParseFromString(record.plan);
  absl::StatusOr<Plan> plan =
      parsed ? PlanFromProto(message)
             : absl::InvalidArgumentError("not a serialized skrull.v1.Plan");
  if (!plan.ok()) {
    return MakeError(
        {.reason = ErrorReason::kInternal},
        "the stored plan of job " + record.key.job + ", step " +
            std::to_string(record.key.step) + ", attempt " +
            std::to_string(record.key.attempt) +
            " cannot be read: " + std::string(plan.status().message()));
  }
  return Make(*std::move(plan), message.digest(), std::move(record));
}

int64_t CommittedPlan::size_bytes() const {
  const size_t bytes =
      sizeof *this + record_.plan.size() + record_.request_digest.size() +
      order_.size() * (sizeof(SequencePlacement) + sizeof(int32_t)) +
      groups_.size() * sizeof(Group) + degrees_.size() * sizeof(DegreeRun) +
      first_degree_.size() * (sizeof(MicroBatchPlan) + sizeof(int32_t)) +
      plan_.blocks.size() * sizeof(Block);
  return static_cast<int64_t>(bytes);
}

RankPlan CommittedPlan::Share(int32_t rank) const {
  RankPlan out{.job = plan_.key.job,
               .step = plan_.key.step,
               .attempt = plan_.key.attempt,
               .digest = digest_,
               .rank = rank,
               .micro_batches = {},
               .blocks = plan_.blocks,
               .batch_token_count = token_count_,
               .predicted_seconds = plan_.summary.predicted_seconds};
  out.micro_batches.reserve(plan_.micro_batches.size());
  std::vector<int32_t> positions;
  std::vector<SequencePlacement> mine;
  for (size_t i = 0; i < plan_.micro_batches.size(); ++i) {
    const MicroBatchPlan& micro_batch = plan_.micro_batches[i];
    positions.clear();
    for (int32_t d = first_degree_[i]; d < first_degree_[i + 1]; ++d) {
      const DegreeRun& run = degrees_[static_cast<size_t>(d)];
      const auto begin = groups_.begin() + run.begin;
      const auto end = groups_.begin() + run.end;
      auto group = std::upper_bound(
          begin, end, rank,
          [](int32_t r, const Group& g) { return r < g.block.first_rank; });
      if (group == begin) continue;
      --group;
      if (rank >= group->block.first_rank + group->block.degree) continue;
      positions.insert(positions.end(), order_.begin() + group->begin,
                       order_.begin() + group->end);
    }
    // Placement order fixes the rows' order; RankSegments puts local ones
    // first.
    std::sort(positions.begin(), positions.end());
    mine.clear();
    for (int32_t position : positions) {
      mine.push_back(micro_batch.placements[static_cast<size_t>(position)]);
    }
    RankMicroBatch share;
    share.segments = RankSegments(mine, rank);
    share.token_count = micro_batch.token_count;
    for (const RankSegment& segment : share.segments) {
      share.row_count += segment.rows();
    }
    share.token_weight = static_cast<double>(share.row_count) /
                         static_cast<double>(token_count_);
    out.micro_batches.push_back(std::move(share));
  }
  return out;
}

}  // namespace skrull
