// Which chunks belong together, and in which order they may run. Pure.
#ifndef SKRULL_CUDA_CHUNK_ORDER_H_
#define SKRULL_CUDA_CHUNK_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "skrull/cuda/status.h"
#include "skrull/planner/chunk_plan.h"

namespace skrull::exec {

// The chunks of one split sequence, first to last, or one chunk of whole
// sequences. Chunks are indices in RankChunkPlan::chunks.
struct ChunkGroup {
  std::vector<int32_t> chunks;
  int64_t token_count = 0;

  friend bool operator==(const ChunkGroup&, const ChunkGroup&) = default;
};

struct ChunkGroups {
  std::vector<ChunkGroup> groups;  // in the order of their first chunks
  // For each chunk.
  std::vector<int32_t> group_of;
  std::vector<int64_t> begin_of;  // its first token's place in the sequence

  friend bool operator==(const ChunkGroups&, const ChunkGroups&) = default;
};

// O(n log n). Errors: INVALID_ARGUMENT naming the chunk, if chunks are not
// listed in the plan's order, or the dependent ones of a sequence do not tile
// it in theirs.
Result<ChunkGroups> GroupChunks(std::span<const RankChunk> chunks);

// The plan's operations, with chunks as indices in RankChunkPlan::chunks, if
// they can be executed:
//  - a chunk goes forward once, is recomputed once if its activations were
//    discarded and not otherwise, and goes backward once;
//  - a dependent chunk goes forward after its predecessor, whose keys it reads,
//    and backward after its successor, whose gradients of its keys it needs;
//  - at most plan.retained_chunks chunks of a sequence keep activations at a
//    time.
// Every state-aware schedule (ChunkFlow, section 4.2) obeys them. REQUIRES:
// groups = GroupChunks(plan.chunks). O(n log n). Errors: INVALID_ARGUMENT
// naming the operation and why it cannot be, or the chunk that never goes
// backward.
Result<std::vector<ChunkOperation>> ResolveOperations(
    const RankChunkPlan& plan, const ChunkGroups& groups);

// "operation 3 (backward of chunk 7)".
std::string DescribeOperation(size_t index, const ChunkOperation& operation);

// Follows a trainer's calls through a plan: every operation in order, and in
// each all layers, ascending forward and descending backward.
class ChunkProgress {
 public:
  // REQUIRES: layer_count >= 1.
  explicit ChunkProgress(int32_t layer_count) : layer_count_(layer_count) {}

  // Moves on if that call is the next one. `operations`: the same each time;
  // they name chunks as the plan does. Errors: INVALID_ARGUMENT saying which
  // call is next; then nothing has changed.
  Status Advance(std::span<const ChunkOperation> operations, int32_t operation,
                 int32_t layer, bool backward);

 private:
  int32_t layer_count_;
  size_t next_ = 0;
  int32_t layers_done_ = 0;  // of the next operation
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CHUNK_ORDER_H_
