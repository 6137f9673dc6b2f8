// What the chunk executor refuses, and how it goes on after that.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "skrull/cuda/chunk_executor.h"
#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/in_process/in_process_pool.h"
#include "skrull/tests/cuda/chunk_pool.h"

namespace skrull::exec::testing {
namespace {

constexpr auto kWait = std::chrono::seconds(30);

// One rank's executor and what it works with.
class Rank {
 public:
  explicit Rank(InProcessPool* pool, int32_t rank = 0)
      : backend_(*CreateCpuAttention(1)),
        stream_(*device_.CreateStream(StreamPriority::kNormal)),
        executor_(*ChunkExecutor::Create(Options(), Resources(pool, rank))) {}
  ~Rank() {
    executor_.reset();
    device_.DestroyStream(stream_);
  }

  static ChunkExecutorOptions Options() {
    return {.problem = {.dtype = DType::kFloat64,
                        .q_heads = 1,
                        .kv_heads = 1,
                        .head_dim = 2,
                        .scale = 0.5},
            .layer_count = 2,
            .grad_comm_dtype = {}};
  }
  ExecutorResources Resources(InProcessPool* pool, int32_t rank) {
    return {.device = &device_,
            .backend = backend_.get(),
            .communicators = pool->communicators(rank),
            .agreement = pool->agreement(rank)};
  }

  // Runs the operations from `first` on, before `end`, on rows of zeros.
  Status Run(const ChunkStep& step, const RankChunkPlan& plan, int32_t first,
             int32_t end) {
    for (int32_t i = first; i < end; ++i) {
      const bool backward =
          plan.operations[static_cast<size_t>(i)].pass == ChunkPass::kBackward;
      for (int32_t n = 0; n < 2; ++n) {
        SKRULL_EXEC_RETURN_IF_ERROR(backward ? Backward(step, i, 1 - n)
                                             : Forward(step, i, n));
      }
    }
    return {};
  }
  Status Forward(const ChunkStep& step, int32_t operation, int32_t layer) {
    const Tensor t = Zeros(step, operation, 2);
    return executor_->Forward(
        step, operation, layer,
        {t, t, t, Zeros(step, operation, 2), Zeros(step, operation, 1)},
        stream_);
  }
  Status Backward(const ChunkStep& step, int32_t operation, int32_t layer) {
    const Tensor t = Zeros(step, operation, 2);
    return executor_->Backward(
        step, operation, layer,
        {t, t, t, t, Zeros(step, operation, 1), t, Zeros(step, operation, 2),
         Zeros(step, operation, 2), Zeros(step, operation, 2)},
        stream_);
  }
  Status Wait() { return executor_->Wait(kWait); }

  ChunkExecutor* operator->() { return executor_.get(); }
  Stream stream() const { return stream_; }

 private:
  // Memory that lives as long as the rank.
  Tensor Zeros(const ChunkStep& step, int32_t operation, int32_t dim) {
    const bool known = operation >= 0 && operation < step.operation_count();
    const int64_t rows = known ? step.maps(operation).rows : 0;
    memory_.push_back(
        std::make_unique<std::vector<double>>(static_cast<size_t>(rows * dim)));
    return DenseTensor(memory_.back()->data(), DType::kFloat64, rows, 1, dim);
  }

  CpuDevice device_;
  std::vector<std::unique_ptr<std::vector<double>>> memory_;
  std::unique_ptr<AttentionBackend> backend_;
  Stream stream_;
  std::unique_ptr<ChunkExecutor> executor_;
};

// Two chunks, of which one is retained: D F B R B.
TestChunks TwoChunks(int32_t cp_size = 1) {
  TestChunks chunks(1, cp_size, 1);
  chunks.AddSplit(0, {4, 3});
  return chunks;
}

// Runs body(rank) on threads.
void OnThreads(int32_t ranks, const std::function<void(int32_t)>& body) {
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("Chunks: wrong options are refused", "[chunks][errors]") {
  InProcessPool pool(1);
  Rank rank(&pool);
  ChunkExecutorOptions options = Rank::Options();
  ExecutorResources resources = rank.Resources(&pool, 0);
  const auto error = [&] {
    return ChunkExecutor::Create(options, resources).status().message();
  };
  REQUIRE(error().empty());
  SECTION("layers") {
    options.layer_count = 0;
    CHECK(error() == "layer_count is 0");
  }
  SECTION("gradients in another type") {
    options.grad_comm_dtype = DType::kBFloat16;
    CHECK_THAT(error(), Catch::Contains("grad_comm_dtype is bfloat16"));
  }
  SECTION("null") {
    resources.device = nullptr;
    CHECK(error() == "device is null");
  }
}

TEST_CASE("Chunks: a call out of order is refused, and fails for good",
          "[chunks][errors]") {
  InProcessPool pool(1);
  Rank rank(&pool);
  const RankPlan plan = TwoChunks().ForRank(0);
  const ChunkStep step = *rank->Prepare(plan);
  REQUIRE(step.operation_count() == 5);
  Status status;
  std::string want;
  SECTION("an operation is left out") {
    REQUIRE(rank.Run(step, *plan.chunk_plan, 0, 1).ok());
    status = rank.Backward(step, 2, 1);
    want =
        "Backward of operation 2 in layer 1, where operation 1 (forward of "
        "chunk 1) in layer 0 is next";
  }
  SECTION("a layer is left out") {
    status = rank.Forward(step, 0, 1);
    want =
        "Forward of operation 0 in layer 1, where operation 0 (forward without "
        "keeping of chunk 0) in layer 0 is next";
  }
  SECTION("forward for backward") {
    REQUIRE(rank.Run(step, *plan.chunk_plan, 0, 2).ok());
    status = rank.Forward(step, 2, 1);
    want =
        "Forward of operation 2 in layer 1, where operation 2 (backward of "
        "chunk 1) in layer 1 is next";
  }
  SECTION("the recomputation is left out") {
    REQUIRE(rank.Run(step, *plan.chunk_plan, 0, 3).ok());
    status = rank.Backward(step, 4, 1);
    want =
        "Backward of operation 4 in layer 1, where operation 3 (recomputation "
        "of chunk 0) in layer 0 is next";
  }
  SECTION("there are no more") {
    REQUIRE(rank.Run(step, *plan.chunk_plan, 0, 5).ok());
    status = rank.Forward(step, 5, 0);
    want = "operation 5 follows the step's last one";
  }
  CHECK(status == InvalidArgument(want));
  CHECK(rank->Poll() == status);
  CHECK(rank.Forward(step, 0, 0) == status);
  CHECK(rank.Wait() == status);
  CHECK(rank->Prepare(plan).status() == status);
}

TEST_CASE("Chunks: a wrong tensor is named", "[chunks][errors]") {
  InProcessPool pool(1);
  Rank rank(&pool);
  const ChunkStep step = *rank->Prepare(TwoChunks().ForRank(0));
  std::vector<double> memory(16);
  const Tensor good = DenseTensor(memory.data(), DType::kFloat64, 4, 1, 2);
  const Tensor lse = DenseTensor(memory.data(), DType::kFloat64, 4, 1, 1);
  CHECK(rank->Forward(step, 0, 0, {good, good, good.Rows(0, 3), good, lse},
                      rank.stream()) == InvalidArgument("v has 3 rows, not 4"));
}

TEST_CASE("Chunks: only the step of the last Prepare is run",
          "[chunks][errors]") {
  InProcessPool pool(1);
  InProcessPool other_pool(1);
  Rank rank(&pool);
  Rank other(&other_pool);
  const RankPlan plan = TwoChunks().ForRank(0);
  const ChunkStep first = *rank->Prepare(plan);
  SECTION("another executor's") {
    CHECK_THAT(other.Forward(first, 0, 0).message(),
               Catch::Contains("another executor's"));
  }
  SECTION("one that was under way is given up") {
    REQUIRE(rank.Run(first, *plan.chunk_plan, 0, 2).ok());
    const ChunkStep second = *rank->Prepare(plan);
    REQUIRE(rank.Run(second, *plan.chunk_plan, 0, 5).ok());
    CHECK(rank.Wait().ok());
    CHECK_THAT(rank.Backward(first, 2, 1).message(),
               Catch::Contains("another step has been prepared since"));
  }
}

TEST_CASE("Chunks: a plan that is not its own is refused", "[chunks][errors]") {
  InProcessPool pool(1);
  Rank rank(&pool);
  RankPlan plan = TwoChunks().ForRank(0);
  SECTION("rank") {
    plan.rank = 3;
    CHECK_THAT(rank->Prepare(plan).status().message(),
               Catch::Contains("rank 3's, where this is rank 0"));
  }
  SECTION("micro-batches") {
    plan.chunk_plan.reset();
    CHECK(rank->Prepare(plan).status().code() == StatusCode::kUnsupported);
  }
  SECTION("both") {
    plan.micro_batches.emplace_back();
    CHECK(rank->Prepare(plan).status().code() == StatusCode::kUnsupported);
  }
  SECTION("operations") {
    plan.chunk_plan->operations.pop_back();
    CHECK_THAT(rank->Prepare(plan).status().message(),
               Catch::Contains("chunk 0 never goes backward"));
  }
  SECTION("segments") {
    plan.chunk_plan->chunks[1].row_count = 9;
    CHECK_THAT(rank->Prepare(plan).status().message(),
               Catch::Contains("row_count is 9"));
  }
}

// One rank holds another plan: every rank is told at once, no exchange is
// called, and a step that is under way goes on.
TEST_CASE("Chunks: ranks with different plans disagree and go on",
          "[chunks][errors]") {
  const TestChunks chunks = TwoChunks(3);
  InProcessPool pool(3);
  std::vector<Status> first(3);
  std::vector<Status> rest(3);
  OnThreads(3, [&](int32_t r) {
    Rank rank(&pool, r);
    const auto i = static_cast<size_t>(r);
    const RankPlan plan = chunks.ForRank(r);
    const ChunkStep step = *rank->Prepare(plan);
    rest[i] = rank.Run(step, *plan.chunk_plan, 0, 2);
    RankPlan mine = chunks.ForRank(r);
    if (r == 1) mine.digest = "other";
    first[i] = rank->Prepare(mine).status();
    if (rest[i].ok()) rest[i] = rank.Run(step, *plan.chunk_plan, 2, 5);
    if (rest[i].ok()) rest[i] = rank.Wait();
  });
  for (size_t r = 0; r < 3; ++r) {
    CHECK(first[r].code() == StatusCode::kFailedPrecondition);
    CHECK_THAT(first[r].message(), Catch::Contains("rank 1 with plan other"));
    CHECK(rest[r].ToString() == "OK");
  }
}

TEST_CASE("Chunks: an abort reaches the others", "[chunks][errors]") {
  const TestChunks chunks = TwoChunks(2);
  InProcessPool pool(
      2, {.time_limit = std::chrono::minutes(5), .poison_buffers = false});
  std::vector<Status> statuses(2);
  OnThreads(2, [&](int32_t r) {
    Rank rank(&pool, r);
    // Rank 0 may still be in here when rank 1 aborts.
    const Result<ChunkStep> step = rank->Prepare(chunks.ForRank(r));
    Status& status = statuses[static_cast<size_t>(r)];
    if (r == 1) {
      rank->Abort({StatusCode::kInternal, "enough"});
      status = rank->Poll();
      return;
    }
    status = step.status();
    if (status.ok()) status = rank.Forward(*step, 0, 0);
    if (status.ok()) status = rank.Wait();
  });
  CHECK(statuses[1] == Status(StatusCode::kInternal, "enough"));
  CHECK(statuses[0] ==
        Status(StatusCode::kAborted, "rank 1: INTERNAL: enough"));
}

TEST_CASE("Chunks: steps grow the store, and share it", "[chunks][errors]") {
  InProcessPool pool(2);
  std::vector<Status> statuses(2);
  std::vector<std::vector<int64_t>> bytes(2);
  OnThreads(2, [&](int32_t r) {
    Rank rank(&pool, r);
    const auto i = static_cast<size_t>(r);
    for (const int32_t tokens : {6, 40, 8}) {
      TestChunks chunks(1, 2, 1);
      chunks.AddSplit(0, {tokens, tokens, 2});
      const RankPlan plan = chunks.ForRank(r);
      const Result<ChunkStep> step = rank->Prepare(plan);
      statuses[i] = step.status();
      if (!step.ok()) return;
      bytes[i].push_back(rank->store_bytes());
      statuses[i] =
          rank.Run(*step, *plan.chunk_plan, 0, step->operation_count());
      if (statuses[i].ok()) statuses[i] = rank.Wait();
      if (!statuses[i].ok()) return;
    }
  });
  for (size_t r = 0; r < 2; ++r) {
    CHECK(statuses[r].ToString() == "OK");
    REQUIRE(bytes[r].size() == 3);
    CHECK(bytes[r][1] > bytes[r][0]);
    CHECK(bytes[r][2] == bytes[r][1]);
  }
}

}  // namespace skrull::exec::testing
