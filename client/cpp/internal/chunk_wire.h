// Plans of chunks from the wire. Pure; safe from any thread. Not for users of
// the client.
#ifndef SKRULL_CLIENT_CPP_INTERNAL_CHUNK_WIRE_H_
#define SKRULL_CLIENT_CPP_INTERNAL_CHUNK_WIRE_H_

#include <optional>

#include "skrull/planner/chunk_plan.h"
#include "skrull/planner/layout.h"
#include "skrull/v1/plan.pb.h"

namespace skrull::client_internal {

RankSegment SegmentFromWire(const v1::RankSegment& wire);

// What MakeRankChunkPlan reads of a plan (figures are left out); nullopt if an
// operation is none this client knows.
std::optional<ChunkPlan> ChunkPlanFromWire(const v1::ChunkPlan& wire);

// nullopt if an operation is none this client knows.
std::optional<RankChunkPlan> RankChunkPlanFromWire(
    const v1::RankChunkPlan& wire);

}  // namespace skrull::client_internal

#endif  // SKRULL_CLIENT_CPP_INTERNAL_CHUNK_WIRE_H_
