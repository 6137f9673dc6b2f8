// The checker's view of which tokens are in which chunk.
#ifndef SKRULL_SERVER_PLANNER_CHUNK_COVERAGE_CHECKER_H_
#define SKRULL_SERVER_PLANNER_CHUNK_COVERAGE_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/planner/chunk_plan.h"

namespace skrull {

// A chunk's place in its group, as indices of chunks.
struct ChunkLinks {
  static constexpr int32_t kNone = -1;

  int32_t first = 0;       // of its group; itself if it is alone
  int32_t before = kNone;  // the one before it
  int32_t after = kNone;   // the one behind it
};

// OK if the piece is a part of its sequence of the batch, of one token at
// least. `chunk` is for the message.
absl::Status CheckPieceRange(std::span<const int64_t> lengths, size_t chunk,
                             const ChunkPiece& piece);

// Each chunk's links, if every token of the batch is in exactly one chunk:
// whole sequences in chunks of group_size 1, and the chunks of any other
// sequence one group that tiles it in order on one DP rank. FAILED_PRECONDITION
// otherwise. REQUIRES: CheckPieceRange of all pieces; every chunk has pieces,
// and one alone where group_size > 1. O(pieces * log).
absl::StatusOr<std::vector<ChunkLinks>> CheckChunkCoverage(
    std::span<const int64_t> lengths, const ChunkPlan& plan);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_CHUNK_COVERAGE_CHECKER_H_
