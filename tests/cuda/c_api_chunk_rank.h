// One rank of a chunk plan through the C interface, for its tests.
#ifndef SKRULL_TESTS_CUDA_C_API_CHUNK_RANK_H_
#define SKRULL_TESTS_CUDA_C_API_CHUNK_RANK_H_

#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "skrull/cuda/c_api/skrull_exec_chunks.h"
#include "skrull/tests/cuda/c_api_rank.h"
#include "skrull/tests/cuda/chunk_pool.h"

namespace skrull::exec::testing {

// A rank's chunk plan as the arrays of the C interface.
class ChunkArrays {
 public:
  ChunkArrays(const RankPlan& plan, int32_t ranks, std::string digest = kDigest)
      : digest_(std::move(digest)), rank_(plan.rank), ranks_(ranks) {
    retained_ = plan.chunk_plan->retained_chunks;
    for (const RankChunk& c : plan.chunk_plan->chunks) {
      for (const RankSegment& s : c.segments) {
        segments.push_back(ToC(s));
      }
      offsets.push_back(static_cast<int64_t>(segments.size()));
      chunks.push_back({c.chunk, c.group_index, c.group_size, 0, c.token_count,
                        c.token_weight});
    }
    for (const ChunkOperation& operation : plan.chunk_plan->operations) {
      operations.push_back(
          {static_cast<int32_t>(operation.pass), operation.chunk});
    }
    for (const Block& block : plan.blocks) {
      blocks.push_back(block.first_rank);
      blocks.push_back(block.degree);
    }
  }

  skrull_rank_chunk_plan Get() const {
    skrull_rank_chunk_plan plan{};
    plan.struct_bytes = sizeof(plan);
    plan.digest = digest_.c_str();
    plan.rank = rank_;
    plan.ranks = ranks_;
    plan.chunk_count = static_cast<int32_t>(chunks.size());
    plan.operation_count = static_cast<int32_t>(operations.size());
    plan.block_count = static_cast<int32_t>(blocks.size() / 2);
    plan.retained_chunks = retained_;
    plan.chunks = chunks.data();
    plan.segment_offsets = offsets.data();
    plan.segments = segments.data();
    plan.operations = operations.data();
    plan.blocks = blocks.data();
    return plan;
  }

  std::vector<skrull_chunk> chunks;
  std::vector<int64_t> offsets = {0};
  std::vector<skrull_segment> segments;
  std::vector<skrull_chunk_operation> operations;
  std::vector<int32_t> blocks;

 private:
  std::string digest_;
  int32_t rank_;
  int32_t ranks_;
  int64_t retained_ = 0;
};

inline skrull_chunk_executor_options ChunkOptionsOf(
    const AttentionProblem& problem, int32_t layers) {
  skrull_chunk_executor_options options{};
  options.struct_bytes = sizeof(options);
  options.scale = problem.scale;
  options.dtype = static_cast<int32_t>(problem.dtype);
  options.q_heads = problem.q_heads;
  options.kv_heads = problem.kv_heads;
  options.head_dim = problem.head_dim;
  options.deterministic = 1;
  options.layer_count = layers;
  return options;
}

// One rank with all it needs.
struct CChunkRank {
  explicit CChunkRank(skrull_comm* given, int32_t layers = 1,
                      const std::function<void(skrull_chunk_executor_options*)>&
                          change = nullptr)
      : comm(given) {
    skrull_chunk_executor_options options = ChunkOptionsOf(kProblem, layers);
    if (change) change(&options);
    REQUIRE(skrull_device_create_stream(device, &stream) == SKRULL_OK);
    REQUIRE(skrull_chunk_executor_create(&options, device, backend, comm,
                                         &executor) == SKRULL_OK);
  }
  // Not in the order in which they were made.
  ~CChunkRank() {
    skrull_device_destroy(device);
    skrull_comm_destroy(comm);
    skrull_chunk_executor_destroy(executor);
    skrull_backend_destroy(backend);
    skrull_chunk_step_destroy(step);
    skrull_chunk_plan_destroy(plan);
  }
  CChunkRank(const CChunkRank&) = delete;
  CChunkRank& operator=(const CChunkRank&) = delete;

  int32_t Prepare(const RankPlan& share, int32_t ranks,
                  const std::string& digest = kDigest) {
    const ChunkArrays arrays(share, ranks, digest);
    const skrull_rank_chunk_plan given = arrays.Get();
    skrull_chunk_plan_destroy(plan);
    plan = nullptr;
    if (const int32_t code = skrull_chunk_plan_create(&given, &plan)) {
      return code;
    }
    skrull_chunk_step_destroy(step);
    step = nullptr;
    return skrull_chunk_executor_prepare(executor, plan, &step);
  }

  skrull_device* device = NewDevice();
  skrull_backend* backend = NewBackend();
  skrull_comm* comm;
  void* stream = nullptr;
  skrull_chunk_executor* executor = nullptr;
  skrull_chunk_plan* plan = nullptr;
  skrull_chunk_step* step = nullptr;
};

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_C_API_CHUNK_RANK_H_
