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
      record_(std::move(record)) {}

void CommittedPlan::Prepare() const {
  std::call_once(prepared_, [this] { index_ = MakeIndex(plan_); });
}

CommittedPlan::Index CommittedPlan::MakeIndex(const Plan& plan) {
  Index index;
  for (const MicroBatchPlan& micro_batch : plan.micro_batches) {
    index.token_count += micro_batch.token_count;
    index.first_degree.push_back(static_cast<int32_t>(index.degrees.size()));
    const std::vector<SequencePlacement>& placements = micro_batch.placements;
    const size_t base = index.order.size();
    index.order.resize(base + placements.size());
    const std::span<int32_t> order = std::span(index.order).subspan(base);
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
      if (first || index.degrees.back().degree != block.degree) {
        const auto at = static_cast<int32_t>(index.groups.size());
        index.degrees.push_back({block.degree, at, at});
      }
      if (first || index.groups.back().block != block) {
        const auto at = static_cast<int32_t>(base + i);
        index.groups.push_back({block, at, at});
        ++index.degrees.back().end;
      }
      ++index.groups.back().end;
    }
  }
  index.first_degree.push_back(static_cast<int32_t>(index.degrees.size()));
  if (!plan.chunk_plan) return index;
  index.chunks.resize(plan.chunk_plan->schedules.size());
  for (size_t i = 0; i < plan.chunk_plan->chunks.size(); ++i) {
    const Chunk& chunk = plan.chunk_plan->chunks[i];
    index.token_count += chunk.token_count;
    index.chunks[static_cast<size_t>(chunk.dp_rank)].push_back(
        static_cast<int32_t>(i));
  }
  return index;
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
  if (plan.ok() && plan->chunk_plan && !IsShareable(*plan->chunk_plan)) {
    plan = absl::InvalidArgumentError("its chunks are not legal");
  }
  // A store does not notice a byte that changed on its disk.
  if (plan.ok() && PlanDigest(message) != message.digest()) {
    plan = absl::InvalidArgumentError("it is not that of its digest");
  }
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
  // A placement is held encoded, decoded and in the index.
  size_t bytes = sizeof *this + record_.plan.size() +
                 plan_.blocks.size() * (sizeof(Block) + sizeof(Group));
  for (const MicroBatchPlan& micro_batch : plan_.micro_batches) {
    bytes +=
        sizeof micro_batch + micro_batch.placements.size() *
                                 (sizeof(SequencePlacement) + sizeof(int32_t));
  }
  if (plan_.chunk_plan) {
    for (const Chunk& chunk : plan_.chunk_plan->chunks) {
      bytes += sizeof chunk + sizeof(int32_t) +
               chunk.pieces.size() * sizeof(ChunkPiece);
    }
    for (const ChunkSchedule& schedule : plan_.chunk_plan->schedules) {
      bytes += sizeof schedule + sizeof(std::vector<int32_t>) +
               schedule.operations.size() * sizeof(ChunkOperation);
    }
  }
  return static_cast<int64_t>(bytes);
}

RankPlan CommittedPlan::Share(int32_t rank) const {
  Prepare();
  RankPlan out{.job = plan_.key.job,
               .step = plan_.key.step,
               .attempt = plan_.key.attempt,
               .digest = digest_,
               .rank = rank,
               .micro_batches = {},
               .blocks = plan_.blocks,
               .batch_token_count = index_.token_count,
               .predicted_seconds = plan_.summary.predicted_seconds,
               .chunk_plan = {}};
  if (plan_.chunk_plan) {
    const ChunkPlan& chunks = *plan_.chunk_plan;
    const auto dp_rank = static_cast<size_t>(rank / chunks.cp_size);
    out.chunk_plan =
        dp_rank < chunks.schedules.size()
            ? MakeRankChunkPlan(chunks, rank, index_.chunks[dp_rank],
                                chunks.schedules[dp_rank], index_.token_count)
            : MakeRankChunkPlan(chunks, rank, index_.token_count);
  }
  out.micro_batches.reserve(plan_.micro_batches.size());
  std::vector<int32_t> positions;
  std::vector<SequencePlacement> mine;
  for (size_t i = 0; i < plan_.micro_batches.size(); ++i) {
    const MicroBatchPlan& micro_batch = plan_.micro_batches[i];
    positions.clear();
    for (int32_t d = index_.first_degree[i]; d < index_.first_degree[i + 1];
         ++d) {
      const DegreeRun& run = index_.degrees[static_cast<size_t>(d)];
      const auto begin = index_.groups.begin() + run.begin;
      const auto end = index_.groups.begin() + run.end;
      auto group = std::upper_bound(
          begin, end, rank,
          [](int32_t r, const Group& g) { return r < g.block.first_rank; });
      if (group == begin) continue;
      --group;
      if (rank >= group->block.first_rank + group->block.degree) continue;
      positions.insert(positions.end(), index_.order.begin() + group->begin,
                       index_.order.begin() + group->end);
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
                         static_cast<double>(index_.token_count);
    out.micro_batches.push_back(std::move(share));
  }
  return out;
}

}  // namespace skrull
