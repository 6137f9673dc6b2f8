// Plans of chunks to the wire and back: a part of convert.h, for convert.cc
// alone. Pure; safe from any thread.
#ifndef SKRULL_SERVER_CONVERT_CHUNKS_H_
#define SKRULL_SERVER_CONVERT_CHUNKS_H_

#include "absl/status/statusor.h"
#include "skrull/planner/chunk_plan.h"
#include "skrull/planner/layout.h"
#include "skrull/v1/plan.pb.h"

namespace skrull {

void RangeToProto(TokenRange range, v1::TokenRange* proto);
void SegmentToProto(const RankSegment& segment, v1::RankSegment* proto);

void ChunkPlanToProto(const ChunkPlan& plan, v1::ChunkPlan* proto);

// Errors: INVALID_ARGUMENT for an operation whose pass is unknown or
// unspecified.
absl::StatusOr<ChunkPlan> ChunkPlanFromProto(const v1::ChunkPlan& proto);

void RankChunkPlanToProto(const RankChunkPlan& plan, v1::RankChunkPlan* proto);

}  // namespace skrull

#endif  // SKRULL_SERVER_CONVERT_CHUNKS_H_
