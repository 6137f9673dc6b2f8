#include "skrull/planner/chunk_flow/chunk_schedule.h"

#include <algorithm>

namespace skrull {

std::vector<ChunkOperation> StateAwareSchedule(int32_t first, int32_t count,
                                               int64_t retained) {
  std::vector<ChunkOperation> operations;
  const auto discarded =
      static_cast<int32_t>(std::max<int64_t>(0, count - retained));
  for (int32_t i = 0; i < count; ++i) {
    operations.push_back(
        {i < discarded ? ChunkPass::kForwardDiscard : ChunkPass::kForward,
         first + i});
  }
  for (int32_t i = count - 1; i >= 0; --i) {
    if (i < discarded) operations.push_back({ChunkPass::kRecompute, first + i});
    operations.push_back({ChunkPass::kBackward, first + i});
  }
  return operations;
}

PipelineTime TimeInPipeline(const Job& job, const ChunkCost& chunk_cost,
                            std::span<const Chunk> chunks,
                            std::span<const ChunkOperation> operations,
                            std::vector<int32_t>* slots) {
  std::vector<PipelineUnit> units;
  std::vector<int32_t> backward_order;
  // A chunk goes forward before anything else, which sets its entry.
  std::vector<int32_t>& slot_of = *slots;
  slot_of.resize(chunks.size());
  for (const ChunkOperation& operation : operations) {
    const auto index = static_cast<size_t>(operation.chunk);
    const Chunk& chunk = chunks[index];
    const double compute = chunk_cost.ComputeSeconds(chunk);
    if (operation.pass == ChunkPass::kBackward) {
      backward_order.push_back(slot_of[index]);
    } else if (operation.pass == ChunkPass::kRecompute) {
      units[static_cast<size_t>(slot_of[index])].backward_seconds +=
          chunk_cost.RecomputeSeconds(compute);
    } else {
      const double seconds =
          job.cost().seconds_per_micro_batch +
          chunk_cost.ChunkSeconds(compute, chunk.dp_rank, chunk.token_count);
      const double forward = seconds * chunk_cost.forward_share();
      slot_of[index] = static_cast<int32_t>(units.size());
      units.push_back({.slot = slot_of[index],
                       .forward_seconds = forward,
                       .backward_seconds = seconds - forward});
    }
  }
  return SimulatePipeline(job.parallelism().pp_size, 1, units, backward_order);
}

}  // namespace skrull
