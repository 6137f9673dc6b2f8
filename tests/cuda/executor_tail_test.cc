// Kernels that read rows behind the last key find finite numbers there.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "skrull/cuda/host_queue.h"
#include "skrull/tests/cuda/chunk_pool.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

constexpr int32_t kTail = 5;

// Fails a call behind whose keys a NaN lies.
class TailReader final : public AttentionBackend {
 public:
  explicit TailReader(AttentionBackend* backend) : backend_(backend) {}

  std::string_view name() const override { return backend_->name(); }
  MemoryKind memory() const override { return backend_->memory(); }
  Status Supports(const AttentionProblem& problem, Pass pass) const override {
    return backend_->Supports(problem, pass);
  }
  LseOrder lse_order() const override { return backend_->lse_order(); }
  int32_t kv_tail_rows() const override { return kTail; }
  Result<int64_t> Prepare(const AttentionProblem& problem,
                          const SegmentBounds& bounds, Pass pass) override {
    return backend_->Prepare(problem, bounds, pass);
  }
  Status Forward(const AttentionForward& call, Workspace workspace,
                 Stream stream) override {
    SKRULL_EXEC_RETURN_IF_ERROR(Look(call.k, stream));
    SKRULL_EXEC_RETURN_IF_ERROR(Look(call.v, stream));
    return backend_->Forward(call, workspace, stream);
  }
  Status Backward(const AttentionBackward& call, Workspace workspace,
                  Stream stream) override {
    SKRULL_EXEC_RETURN_IF_ERROR(Look(call.k, stream));
    SKRULL_EXEC_RETURN_IF_ERROR(Look(call.v, stream));
    return backend_->Backward(call, workspace, stream);
  }

 private:
  static Status Look(const Tensor& keys, Stream stream) {
    return EnqueueOnHost(stream, [keys](const Status& device) -> Status {
      if (!device.ok()) return {};
      const Tensor tail = keys.Rows(keys.rows, kTail);
      const auto* values = static_cast<const double*>(tail.data);
      for (int64_t i = 0; i < kTail * tail.row_stride; ++i) {
        if (!std::isfinite(values[i])) {
          return {StatusCode::kDeviceError, "a NaN behind the keys"};
        }
      }
      return {};
    });
  }

  AttentionBackend* const backend_;
};

}  // namespace

TEST_CASE("Executor: finite rows lie behind its keys", "[executor]") {
  // All sharded: local keys are the caller's.
  const TestPlan plan{.ranks = 3,
                      .micro_batches = {{{0, 20, 0, 3}, {1, 5, 1, 2}}}};
  for (const Exchange exchange : {Exchange::kAllGather, Exchange::kRing}) {
    std::mt19937_64 random(1);
    RunOptions options;
    options.executor.problem = {.dtype = DType::kFloat64,
                                .q_heads = 2,
                                .kv_heads = 1,
                                .head_dim = 4,
                                .scale = 0.5};
    options.executor.exchange = exchange;
    std::vector<std::unique_ptr<AttentionBackend>> readers(3);
    options.change_parts = [&](int32_t rank, RankParts* parts) {
      auto& mine = readers[static_cast<size_t>(rank)];
      mine = std::make_unique<TailReader>(parts->backend);
      parts->backend = mine.get();
    };
    const auto data = RandomData(&random, options.executor.problem, plan);
    const RunResult result = RunPlan(plan, data, options);
    for (const Status& status : result.statuses) {
      CHECK(status.ToString() == "OK");
    }
    CHECK(
        CompareWithDense(plan, data, options.executor.problem, result).worst() <
        1e-10);
  }
}

TEST_CASE("Chunks: finite rows lie behind its keys", "[chunks]") {
  // In the store, behind the last chunk and inside; and in copies.
  TestChunks chunks(1, 2, 1);
  chunks.AddSplit(0, {20, 7, 1});
  chunks.AddWhole(0, {9});
  chunks.AddWhole(0, {5, 6});
  std::mt19937_64 random(1);
  RunOptions options;
  options.executor.problem = {.dtype = DType::kFloat64,
                              .q_heads = 2,
                              .kv_heads = 1,
                              .head_dim = 4,
                              .scale = 0.5};
  std::vector<std::unique_ptr<AttentionBackend>> readers(2);
  options.change_parts = [&](int32_t rank, RankParts* parts) {
    auto& mine = readers[static_cast<size_t>(rank)];
    mine = std::make_unique<TailReader>(parts->backend);
    parts->backend = mine.get();
  };
  const auto data = RandomData(&random, options.executor.problem, chunks);
  const ChunkRunResult result = RunChunks(chunks, data, options);
  for (const Status& status : result.statuses) {
    CHECK(status.ToString() == "OK");
  }
  CHECK(
      CompareWithDense(chunks, data, options.executor.problem, result).worst() <
      1e-10);
}

}  // namespace skrull::exec::testing
