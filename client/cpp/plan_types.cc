#include "skrull/client/plan_types.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "skrull/client/internal/chunk_wire.h"
#include "skrull/client/internal/wire.h"

namespace skrull {
namespace {

// Placements that layout's functions accept, whatever the bytes held.
absl::StatusOr<std::vector<SequencePlacement>> PlacementsFromWire(
    const v1::MicroBatch& wire) {
  std::vector<SequencePlacement> placements;
  placements.reserve(static_cast<size_t>(wire.placements_size()));
  for (const v1::Placement& from : wire.placements()) {
    if (from.token_count() < 1 || from.degree() < 1 || from.first_rank() < 0) {
      return client_internal::InvalidField(
          "plan_bytes", absl::StrCat("sequence ", from.sequence(),
                                     " has no legal placement"));
    }
    placements.push_back({.sequence = from.sequence(),
                          .token_count = from.token_count(),
                          .first_rank = from.first_rank(),
                          .degree = from.degree()});
  }
  return placements;
}

}  // namespace

absl::StatusOr<RankPlan> RankPlanOf(const PlanResult& plan, int32_t rank) {
  if (rank < 0) {
    return client_internal::InvalidField(
        "rank", absl::StrCat("must be at least 0, is ", rank));
  }
  v1::Plan wire;
  if (!wire.ParseFromString(plan.plan_bytes) ||
      (wire.micro_batches().empty() && !wire.has_chunk_plan())) {
    return client_internal::InvalidField("plan_bytes", "not a skrull.v1.Plan");
  }
  RankPlan share;
  share.job = wire.job();
  share.step = wire.step();
  share.attempt = wire.attempt();
  share.digest = wire.digest();
  share.rank = rank;
  share.predicted_seconds = wire.summary().predicted_seconds();
  for (const v1::Block& block : wire.blocks()) {
    share.blocks.push_back(
        {.first_rank = block.first_rank(), .degree = block.degree()});
  }
  for (const v1::MicroBatch& micro_batch : wire.micro_batches()) {
    share.batch_token_count += micro_batch.token_count();
  }
  if (wire.has_chunk_plan()) {
    const std::optional<ChunkPlan> chunk_plan =
        client_internal::ChunkPlanFromWire(wire.chunk_plan());
    if (!chunk_plan || !IsShareable(*chunk_plan)) {
      return client_internal::InvalidField("plan_bytes",
                                           "its chunks are not legal");
    }
    for (const Chunk& chunk : chunk_plan->chunks) {
      share.batch_token_count += chunk.token_count;
    }
    share.chunk_plan =
        MakeRankChunkPlan(*chunk_plan, rank, share.batch_token_count);
  }
  for (const v1::MicroBatch& micro_batch : wire.micro_batches()) {
    absl::StatusOr<std::vector<SequencePlacement>> placements =
        PlacementsFromWire(micro_batch);
    if (!placements.ok()) return placements.status();
    RankMicroBatch part;
    part.segments = RankSegments(*placements, rank);
    for (const RankSegment& segment : part.segments) {
      part.row_count += segment.rows();
    }
    part.token_count = micro_batch.token_count();
    part.token_weight = share.batch_token_count > 0
                            ? static_cast<double>(part.row_count) /
                                  static_cast<double>(share.batch_token_count)
                            : 0;
    share.micro_batches.push_back(std::move(part));
  }
  return share;
}

}  // namespace skrull
