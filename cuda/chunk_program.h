// A rank's chunk plan, checked and made ready for execution: maps of its
// chunks, their places in the store, and what each operation does there. Pure.
#ifndef SKRULL_CUDA_CHUNK_PROGRAM_H_
#define SKRULL_CUDA_CHUNK_PROGRAM_H_

#include <cstdint>
#include <vector>

#include "skrull/cuda/chunk_maps.h"
#include "skrull/cuda/status.h"
#include "skrull/planner/chunk_plan.h"

namespace skrull::exec {

// The store rows of a group (chunk_order.h).
struct GroupRows {
  int64_t first_row = 0;           // of K and V
  int64_t first_gradient_row = 0;  // of dK and dV
  int64_t rows = 0;                // tokens; of each. 0: nothing is stored

  friend bool operator==(const GroupRows&, const GroupRows&) = default;
};

struct ProgramChunk {
  ChunkMaps maps;
  GroupRows group;  // the same for all chunks of a sequence

  friend bool operator==(const ProgramChunk&, const ProgramChunk&) = default;
};

struct ProgramOperation {
  ChunkPass pass = ChunkPass::kForward;
  int32_t chunk = 0;  // index in ChunkProgram::chunks
  // The first backward operation of a split sequence: its gradients in the
  // store begin as zeros.
  bool begins_gradients = false;

  friend bool operator==(const ProgramOperation&,
                         const ProgramOperation&) = default;
};

struct ChunkProgram {
  std::vector<ProgramChunk> chunks;
  std::vector<ProgramOperation> operations;
  int64_t store_rows = 0;  // of one layer's K and V
  int64_t gradient_rows = 0;

  friend bool operator==(const ChunkProgram&, const ChunkProgram&) = default;
};

// The program of rank `rank`. Behind the K and V of each group lie `tail_rows`
// rows that kernels may read. Keys stay in the store from their group's first
// operation to its last, which is the backward pass of the sequence's first
// chunk; gradients from its first backward pass on. O(segments * degree +
// operations * log). Errors: INVALID_ARGUMENT naming what is wrong with the
// plan: see BuildChunkMaps, GroupChunks and ResolveOperations; also if chunks
// are on several blocks.
Result<ChunkProgram> BuildChunkProgram(const RankChunkPlan& plan, int32_t rank,
                                       int32_t tail_rows);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CHUNK_PROGRAM_H_
