#include "skrull/server/status/rank_load.h"

#include <algorithm>
#include <map>

#include "skrull/planner/layout.h"

namespace skrull {
namespace {

// Adds the rows of a block that holds `tokens` to those of its ranks, as far as
// `rows` goes.
void AddBlock(Block block, int64_t tokens, std::vector<int64_t>* rows) {
  const auto ranks = static_cast<int32_t>(rows->size());
  const int32_t end = std::min(block.first_rank + block.degree, ranks);
  for (int32_t rank = block.first_rank; rank < end; ++rank) {
    (*rows)[static_cast<size_t>(rank)] +=
        BlockRows(tokens, block.degree, rank - block.first_rank);
  }
}

// Rows of each rank in one micro-batch.
void AddMicroBatch(const MicroBatchPlan& micro_batch,
                   std::vector<int64_t>* rows) {
  const auto ranks = static_cast<int32_t>(rows->size());
  std::map<Block, int64_t> sharded;  // tokens
  for (const SequencePlacement& placement : micro_batch.placements) {
    if (placement.first_rank >= ranks) continue;
    if (placement.degree == 1) {
      (*rows)[static_cast<size_t>(placement.first_rank)] +=
          placement.token_count;
    } else {
      sharded[placement.block()] += placement.token_count;
    }
  }
  for (const auto& [block, tokens] : sharded) AddBlock(block, tokens, rows);
}

}  // namespace

std::vector<float> RankLoads(const Job& job, const Plan& plan,
                             int32_t max_ranks) {
  const auto count =
      static_cast<size_t>(std::min(job.pool().ranks(), max_ranks));
  std::vector<int64_t> fullest(count);
  const auto take = [&](const std::vector<int64_t>& rows) {
    for (size_t rank = 0; rank < count; ++rank) {
      fullest[rank] = std::max(fullest[rank], rows[rank]);
    }
  };
  for (const MicroBatchPlan& micro_batch : plan.micro_batches) {
    std::vector<int64_t> rows(count);
    AddMicroBatch(micro_batch, &rows);
    take(rows);
  }
  if (plan.chunk_plan) {
    const int32_t cp_size = plan.chunk_plan->cp_size;
    for (const Chunk& chunk : plan.chunk_plan->chunks) {
      std::vector<int64_t> rows(count);
      AddBlock({.first_rank = chunk.dp_rank * cp_size, .degree = cp_size},
               chunk.token_count, &rows);
      take(rows);
    }
  }
  std::vector<float> loads;
  loads.reserve(count);
  for (const int64_t rows : fullest) {
    loads.push_back(static_cast<float>(static_cast<double>(rows) /
                                       static_cast<double>(job.bucket_size())));
  }
  return loads;
}

}  // namespace skrull
