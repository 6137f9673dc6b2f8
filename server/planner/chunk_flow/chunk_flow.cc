#include "skrull/planner/chunk_flow/chunk_flow.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <queue>
#include <utility>

#include "skrull/planner/chunk_flow/bin_packing.h"
#include "skrull/planner/chunk_flow/chunk_cost.h"
#include "skrull/planner/chunk_flow/chunk_memory.h"
#include "skrull/planner/chunk_flow/chunk_schedule.h"
#include "skrull/planner/cost_model.h"

namespace skrull {
namespace {

// What goes to one DP rank as a whole: the chunks of one sequence, or one chunk
// of whole sequences.
struct ChunkGroup {
  std::vector<Chunk> chunks;
  double seconds = 0;  // on DP rank 0, overheads and recomputation included
};

// What one DP rank runs; operations name its own chunks.
struct DpRankPlan {
  std::vector<Chunk> chunks;
  std::vector<ChunkOperation> operations;
};

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

class Builder {
 public:
  Builder(const Job& job, std::span<const int64_t> lengths)
      : job_(job),
        lengths_(lengths),
        cost_(job),
        chunk_cost_(job, cost_),
        shape_(ChooseChunkShape(
            job, *std::max_element(lengths.begin(), lengths.end()))) {}

  std::optional<ChunkPlan> Run(int64_t max_chunks) {
    int64_t count = 0;
    for (const int64_t length : lengths_) {
      if (length <= shape_.chunk_size) continue;
      count += CeilDiv(length, shape_.chunk_size);
      if (count > max_chunks) return std::nullopt;
    }
    for (int32_t k = 0; k < std::ssize(lengths_); ++k) {
      if (LengthOf(k) > shape_.chunk_size) Split(k);
    }
    PackShort();
    if (count + packed_ > max_chunks) return std::nullopt;
    return Schedule();
  }

 private:
  int64_t LengthOf(int32_t sequence) const {
    return lengths_[static_cast<size_t>(sequence)];
  }

  void Split(int32_t sequence) {
    const int64_t tokens = LengthOf(sequence);
    ChunkGroup group;
    for (int64_t begin = 0; begin < tokens; begin += shape_.chunk_size) {
      Chunk chunk;
      chunk.pieces = {
          {.sequence = sequence,
           .token_count = static_cast<int32_t>(tokens),
           .range = {begin, std::min(tokens, begin + shape_.chunk_size)}}};
      chunk.group_index = static_cast<int32_t>(group.chunks.size());
      group.chunks.push_back(std::move(chunk));
    }
    for (Chunk& chunk : group.chunks) {
      chunk.group_size = static_cast<int32_t>(group.chunks.size());
    }
    Add(std::move(group));
  }

  void PackShort() {
    std::vector<int32_t> sequences;
    std::vector<int64_t> sizes;
    for (int32_t k = 0; k < std::ssize(lengths_); ++k) {
      if (LengthOf(k) > shape_.chunk_size) continue;
      sequences.push_back(k);
      sizes.push_back(LengthOf(k));
    }
    if (sizes.empty()) return;
    for (const std::vector<int32_t>& bin :
         PackFewest(sizes, StandaloneCapacity(job_, shape_),
                    job_.max_sequences_per_micro_batch())) {
      ChunkGroup group;
      Chunk& chunk = group.chunks.emplace_back();
      for (const int32_t item : bin) {
        const int32_t sequence = sequences[static_cast<size_t>(item)];
        chunk.pieces.push_back(
            {.sequence = sequence,
             .token_count = static_cast<int32_t>(LengthOf(sequence)),
             .range = {0, LengthOf(sequence)}});
      }
      Add(std::move(group));
      ++packed_;
    }
  }

  void Add(ChunkGroup group) {
    for (Chunk& chunk : group.chunks) {
      for (const ChunkPiece& piece : chunk.pieces) {
        chunk.token_count += piece.range.size();
      }
    }
    group.seconds = SecondsOn(group, 0);
    groups_.push_back(std::move(group));
  }

  double SecondsOn(const ChunkGroup& group, int32_t dp_rank) const {
    const int64_t discarded = std::ssize(group.chunks) - shape_.retained;
    double seconds = 0;
    for (const Chunk& chunk : group.chunks) {
      const double compute = chunk_cost_.ComputeSeconds(chunk);
      seconds += job_.cost().seconds_per_micro_batch +
                 chunk_cost_.ChunkSeconds(compute, dp_rank, chunk.token_count);
      if (chunk.group_index < discarded) {
        seconds += chunk_cost_.RecomputeSeconds(compute);
      }
    }
    return seconds;
  }

  // Groups to DP ranks, longest first, each to the one that is done first.
  ChunkPlan Schedule() {
    std::stable_sort(groups_.begin(), groups_.end(),
                     [](const ChunkGroup& a, const ChunkGroup& b) {
                       return a.seconds > b.seconds;
                     });
    using Load = std::pair<double, int32_t>;  // seconds, DP rank
    std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
    const int32_t dp_size = job_.pool().dp_size;
    for (int32_t d = 0; d < dp_size; ++d) loads.emplace(0.0, d);
    std::vector<std::vector<ChunkGroup*>> of(static_cast<size_t>(dp_size));
    for (ChunkGroup& group : groups_) {
      const auto [seconds, d] = loads.top();
      loads.pop();
      of[static_cast<size_t>(d)].push_back(&group);
      loads.emplace(seconds + SecondsOn(group, d), d);
    }
    ChunkPlan plan;
    plan.chunk_size_tokens = shape_.chunk_size;
    plan.retained_chunks = shape_.retained;
    plan.cp_size = job_.pool().cp_size;
    for (int32_t d = 0; d < dp_size; ++d) {
      AppendDpRank(d, of[static_cast<size_t>(d)], &plan);
    }
    return plan;
  }

  void AppendDpRank(int32_t dp_rank, const std::vector<ChunkGroup*>& groups,
                    ChunkPlan* plan) const {
    DpRankPlan best = InOrder(dp_rank, groups);
    if (job_.parallelism().pp_size > 1 && groups.size() > 1) {
      DpRankPlan reversed = InOrder(dp_rank, {groups.rbegin(), groups.rend()});
      if (Makespan(reversed) < Makespan(best)) best = std::move(reversed);
    }
    const auto base = static_cast<int32_t>(plan->chunks.size());
    ChunkSchedule& schedule = plan->schedules.emplace_back();
    schedule.dp_rank = dp_rank;
    schedule.operations = std::move(best.operations);
    for (ChunkOperation& operation : schedule.operations) {
      operation.chunk += base;
    }
    std::move(best.chunks.begin(), best.chunks.end(),
              std::back_inserter(plan->chunks));
  }

  DpRankPlan InOrder(int32_t dp_rank,
                     const std::vector<ChunkGroup*>& groups) const {
    DpRankPlan out;
    for (const ChunkGroup* group : groups) {
      const std::vector<ChunkOperation> operations = StateAwareSchedule(
          static_cast<int32_t>(out.chunks.size()),
          static_cast<int32_t>(group->chunks.size()), shape_.retained);
      out.operations.insert(out.operations.end(), operations.begin(),
                            operations.end());
      for (const Chunk& chunk : group->chunks) {
        out.chunks.push_back(chunk);
        out.chunks.back().dp_rank = dp_rank;
      }
    }
    return out;
  }

  double Makespan(const DpRankPlan& plan) const {
    std::vector<int32_t> scratch;
    return TimeInPipeline(job_, chunk_cost_, plan.chunks, plan.operations,
                          &scratch)
        .makespan_seconds;
  }

  const Job& job_;
  const std::span<const int64_t> lengths_;
  const CostModel cost_;
  const ChunkCost chunk_cost_;
  const ChunkShape shape_;
  std::vector<ChunkGroup> groups_;
  int64_t packed_ = 0;  // chunks of whole sequences
};

}  // namespace

std::optional<ChunkPlan> RunChunkFlow(const Job& job,
                                      std::span<const int64_t> lengths,
                                      int64_t max_chunks) {
  return Builder(job, lengths).Run(max_chunks);
}

}  // namespace skrull
