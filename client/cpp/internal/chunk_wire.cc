#include "skrull/client/internal/chunk_wire.h"

#include <utility>
#include <vector>

namespace skrull::client_internal {
namespace {

TokenRange RangeFromWire(const v1::TokenRange& wire) {
  return {.begin = wire.begin(), .end = wire.end()};
}

std::optional<ChunkPass> PassFromWire(v1::ChunkPass wire) {
  switch (wire) {
    case v1::CHUNK_PASS_FORWARD:
      return ChunkPass::kForward;
    case v1::CHUNK_PASS_FORWARD_DISCARD:
      return ChunkPass::kForwardDiscard;
    case v1::CHUNK_PASS_RECOMPUTE:
      return ChunkPass::kRecompute;
    case v1::CHUNK_PASS_BACKWARD:
      return ChunkPass::kBackward;
    default:
      return std::nullopt;
  }
}

// False if a pass is unknown.
template <typename Operations>
bool OperationsFromWire(const Operations& wire,
                        std::vector<ChunkOperation>* operations) {
  operations->reserve(static_cast<size_t>(wire.size()));
  for (const v1::ChunkOperation& from : wire) {
    const std::optional<ChunkPass> pass = PassFromWire(from.pass());
    if (!pass) return false;
    operations->push_back({.pass = *pass, .chunk = from.chunk()});
  }
  return true;
}

}  // namespace

RankSegment SegmentFromWire(const v1::RankSegment& wire) {
  return {.sequence = wire.sequence(),
          .token_count = wire.token_count(),
          .block = {.first_rank = wire.block().first_rank(),
                    .degree = wire.block().degree()},
          .low = RangeFromWire(wire.low()),
          .high = RangeFromWire(wire.high())};
}

std::optional<ChunkPlan> ChunkPlanFromWire(const v1::ChunkPlan& wire) {
  ChunkPlan plan;
  plan.chunk_size_tokens = wire.chunk_size_tokens();
  plan.retained_chunks = wire.retained_chunks();
  plan.cp_size = wire.cp_size();
  plan.chunks.reserve(static_cast<size_t>(wire.chunks_size()));
  for (const v1::Chunk& from : wire.chunks()) {
    Chunk chunk;
    chunk.dp_rank = from.dp_rank();
    chunk.group_index = from.group_index();
    chunk.group_size = from.group_size();
    chunk.token_count = from.token_count();
    for (const v1::ChunkPiece& piece : from.pieces()) {
      chunk.pieces.push_back({.sequence = piece.sequence(),
                              .token_count = piece.token_count(),
                              .range = RangeFromWire(piece.range())});
    }
    plan.chunks.push_back(std::move(chunk));
  }
  for (const v1::ChunkSchedule& from : wire.schedules()) {
    ChunkSchedule schedule;
    schedule.dp_rank = from.dp_rank();
    if (!OperationsFromWire(from.operations(), &schedule.operations)) {
      return std::nullopt;
    }
    plan.schedules.push_back(std::move(schedule));
  }
  return plan;
}

std::optional<RankChunkPlan> RankChunkPlanFromWire(
    const v1::RankChunkPlan& wire) {
  RankChunkPlan plan;
  plan.retained_chunks = wire.retained_chunks();
  plan.chunks.reserve(static_cast<size_t>(wire.chunks_size()));
  for (const v1::RankChunk& from : wire.chunks()) {
    RankChunk chunk;
    chunk.chunk = from.chunk();
    chunk.row_count = from.row_count();
    chunk.group_index = from.group_index();
    chunk.group_size = from.group_size();
    chunk.token_weight = from.token_weight();
    chunk.token_count = from.token_count();
    for (const v1::RankSegment& segment : from.segments()) {
      chunk.segments.push_back(SegmentFromWire(segment));
    }
    plan.chunks.push_back(std::move(chunk));
  }
  if (!OperationsFromWire(wire.operations(), &plan.operations)) {
    return std::nullopt;
  }
  return plan;
}

}  // namespace skrull::client_internal
