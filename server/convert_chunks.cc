#include "skrull/server/convert_chunks.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"

namespace skrull {
namespace {

v1::ChunkPass PassToProto(ChunkPass pass) {
  switch (pass) {
    case ChunkPass::kForward:
      return v1::CHUNK_PASS_FORWARD;
    case ChunkPass::kForwardDiscard:
      return v1::CHUNK_PASS_FORWARD_DISCARD;
    case ChunkPass::kRecompute:
      return v1::CHUNK_PASS_RECOMPUTE;
    case ChunkPass::kBackward:
      return v1::CHUNK_PASS_BACKWARD;
  }
  return v1::CHUNK_PASS_UNSPECIFIED;
}

std::optional<ChunkPass> PassFromProto(v1::ChunkPass pass) {
  switch (pass) {
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

void OperationToProto(const ChunkOperation& operation,
                      v1::ChunkOperation* proto) {
  proto->set_pass(PassToProto(operation.pass));
  proto->set_chunk(operation.chunk);
}

Chunk ChunkFromProto(const v1::Chunk& proto) {
  Chunk chunk;
  chunk.dp_rank = proto.dp_rank();
  chunk.pieces.reserve(static_cast<size_t>(proto.pieces_size()));
  for (const v1::ChunkPiece& piece : proto.pieces()) {
    chunk.pieces.push_back(
        {.sequence = piece.sequence(),
         .token_count = piece.token_count(),
         .range = {piece.range().begin(), piece.range().end()}});
  }
  chunk.group_index = proto.group_index();
  chunk.group_size = proto.group_size();
  chunk.token_count = proto.token_count();
  chunk.predicted_seconds = proto.predicted_seconds();
  return chunk;
}

}  // namespace

void RangeToProto(TokenRange range, v1::TokenRange* proto) {
  proto->set_begin(range.begin);
  proto->set_end(range.end);
}

void SegmentToProto(const RankSegment& segment, v1::RankSegment* proto) {
  proto->set_sequence(segment.sequence);
  proto->set_token_count(segment.token_count);
  proto->mutable_block()->set_first_rank(segment.block.first_rank);
  proto->mutable_block()->set_degree(segment.block.degree);
  RangeToProto(segment.low, proto->mutable_low());
  RangeToProto(segment.high, proto->mutable_high());
}

void ChunkPlanToProto(const ChunkPlan& plan, v1::ChunkPlan* proto) {
  proto->set_chunk_size_tokens(plan.chunk_size_tokens);
  proto->set_retained_chunks(plan.retained_chunks);
  proto->set_cp_size(plan.cp_size);
  for (const Chunk& chunk : plan.chunks) {
    v1::Chunk* out = proto->add_chunks();
    out->set_dp_rank(chunk.dp_rank);
    for (const ChunkPiece& piece : chunk.pieces) {
      v1::ChunkPiece* part = out->add_pieces();
      part->set_sequence(piece.sequence);
      part->set_token_count(piece.token_count);
      RangeToProto(piece.range, part->mutable_range());
    }
    out->set_group_index(chunk.group_index);
    out->set_group_size(chunk.group_size);
    out->set_token_count(chunk.token_count);
    out->set_predicted_seconds(chunk.predicted_seconds);
  }
  for (const ChunkSchedule& schedule : plan.schedules) {
    v1::ChunkSchedule* out = proto->add_schedules();
    out->set_dp_rank(schedule.dp_rank);
    for (const ChunkOperation& operation : schedule.operations) {
      OperationToProto(operation, out->add_operations());
    }
    out->set_predicted_seconds(schedule.predicted_seconds);
  }
}

absl::StatusOr<ChunkPlan> ChunkPlanFromProto(const v1::ChunkPlan& proto) {
  ChunkPlan plan;
  plan.chunk_size_tokens = proto.chunk_size_tokens();
  plan.retained_chunks = proto.retained_chunks();
  plan.cp_size = proto.cp_size();
  plan.chunks.reserve(static_cast<size_t>(proto.chunks_size()));
  for (const v1::Chunk& chunk : proto.chunks()) {
    plan.chunks.push_back(ChunkFromProto(chunk));
  }
  plan.schedules.reserve(static_cast<size_t>(proto.schedules_size()));
  for (int s = 0; s < proto.schedules_size(); ++s) {
    const v1::ChunkSchedule& from = proto.schedules(s);
    ChunkSchedule schedule;
    schedule.dp_rank = from.dp_rank();
    schedule.predicted_seconds = from.predicted_seconds();
    schedule.operations.reserve(static_cast<size_t>(from.operations_size()));
    for (int i = 0; i < from.operations_size(); ++i) {
      const std::optional<ChunkPass> pass =
          PassFromProto(from.operations(i).pass());
      if (!pass) {
        return FieldError(
            absl::StrCat("chunk_plan.schedules[", s, "].operations[", i,
                         "].pass"),
            absl::StrCat("unknown value ", from.operations(i).pass()));
      }
      schedule.operations.push_back({*pass, from.operations(i).chunk()});
    }
    plan.schedules.push_back(std::move(schedule));
  }
  return plan;
}

void RankChunkPlanToProto(const RankChunkPlan& plan, v1::RankChunkPlan* proto) {
  proto->set_retained_chunks(plan.retained_chunks);
  for (const RankChunk& chunk : plan.chunks) {
    v1::RankChunk* out = proto->add_chunks();
    out->set_chunk(chunk.chunk);
    for (const RankSegment& segment : chunk.segments) {
      SegmentToProto(segment, out->add_segments());
    }
    out->set_row_count(chunk.row_count);
    out->set_group_index(chunk.group_index);
    out->set_group_size(chunk.group_size);
    out->set_token_weight(chunk.token_weight);
    out->set_token_count(chunk.token_count);
  }
  for (const ChunkOperation& operation : plan.operations) {
    OperationToProto(operation, proto->add_operations());
  }
}

}  // namespace skrull
