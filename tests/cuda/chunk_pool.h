// Runs a plan of chunks on N ranks, threads of this process, and compares what
// they compute with the oracle.
#ifndef SKRULL_TESTS_CUDA_CHUNK_POOL_H_
#define SKRULL_TESTS_CUDA_CHUNK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "skrull/cuda/chunk_executor.h"
#include "skrull/cuda/status.h"
#include "skrull/planner/chunk_plan.h"
#include "skrull/planner/rank_plan.h"
#include "skrull/tests/cuda/host_tensor.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {

// A plan made by hand, its sequences numbered as they are added; or a
// planner's.
class TestChunks {
 public:
  TestChunks(int32_t dp_size, int32_t cp_size, int64_t retained);
  // `lengths` of the plan's sequences.
  TestChunks(const ChunkPlan& plan, const std::vector<int32_t>& lengths)
      : cp_size_(plan.cp_size), plan_(plan), lengths_(lengths) {}

  // A sequence in chunks of these lengths; or one chunk of whole sequences.
  // They run in state-aware order, after what the DP rank has already.
  void AddSplit(int32_t dp_rank, const std::vector<int32_t>& lengths);
  void AddWhole(int32_t dp_rank, const std::vector<int32_t>& lengths);

  // Replaces the operations of the DP rank.
  void SetOperations(int32_t dp_rank, std::vector<ChunkOperation> operations) {
    plan_.schedules[static_cast<size_t>(dp_rank)].operations =
        std::move(operations);
  }

  int32_t ranks() const {
    return static_cast<int32_t>(plan_.schedules.size()) * cp_size_;
  }
  const std::vector<int32_t>& sequence_lengths() const { return lengths_; }
  const ChunkPlan& plan() const { return plan_; }

  // Its share for one rank, by the definition of chunk_plan.h.
  RankPlan ForRank(int32_t rank) const;

 private:
  void Schedule(int32_t dp_rank, int32_t count);

  int32_t cp_size_;
  ChunkPlan plan_;
  std::vector<int32_t> lengths_;
};

// Pools of up to `max_ranks`, 1 .. 6 chunks a sequence, 1 .. 4 of them
// retained, lengths 1 .. 90 and many below 2 * cp_size; the sum of the squared
// lengths stays below `budget`.
TestChunks RandomChunks(std::mt19937_64* random, int32_t max_ranks,
                        double budget = 8e4);

struct ChunkRunResult {
  // [rank], as in RunResult.
  std::vector<Status> statuses;
  std::vector<Status> statuses_after;
  std::vector<int64_t> store_bytes;
  // [layer][rank]: by chunk. Outputs are those of the recomputation where there
  // is one.
  using ChunkTensors = std::map<int32_t, RankTensors>;
  std::vector<std::vector<ChunkTensors>> tensors;
  // Forward passes whose chunk was recomputed: o and lse.
  int recomputed = 0;
  int recomputed_with_other_bits = 0;
};

// options.executor gives problem and grad_comm_dtype. data[layer * sequences +
// sequence].
ChunkRunResult RunChunks(const TestChunks& chunks,
                         const std::vector<SequenceData>& data,
                         const RunOptions& options);

std::vector<SequenceData> RandomData(std::mt19937_64* random,
                                     const AttentionProblem& problem,
                                     const TestChunks& chunks,
                                     int32_t layers = 1);

Errors CompareWithDense(const TestChunks& chunks,
                        const std::vector<SequenceData>& data,
                        const AttentionProblem& problem,
                        const ChunkRunResult& result);

// The same bits everywhere?
bool SameBits(const ChunkRunResult& a, const ChunkRunResult& b);

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_CHUNK_POOL_H_
