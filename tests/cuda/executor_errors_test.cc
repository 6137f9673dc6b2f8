// What the executor refuses, and how it goes on after that.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/executor.h"
#include "skrull/cuda/host_queue.h"
#include "skrull/cuda/in_process/in_process_pool.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

constexpr auto kWait = std::chrono::seconds(30);

// One rank's executor and what it works with.
class Rank {
 public:
  Rank(InProcessPool* pool, int32_t rank, ExecutorOptions options = Small())
      : backend_(*CreateCpuAttention(1)),
        stream_(*device_.CreateStream(StreamPriority::kNormal)),
        executor_(*Executor::Create(options, Resources(pool, rank))) {}
  ~Rank() {
    executor_.reset();
    device_.DestroyStream(stream_);
  }

  static ExecutorOptions Small() {
    return {.problem = {.dtype = DType::kFloat64,
                        .q_heads = 2,
                        .kv_heads = 1,
                        .head_dim = 3,
                        .scale = 0.5},
            .exchange = Exchange::kAllGather,
            .grad_comm_dtype = {}};
  }
  ExecutorResources Resources(InProcessPool* pool, int32_t rank) {
    return {.device = &device_,
            .backend = backend_.get(),
            .communicators = pool->communicators(rank),
            .agreement = pool->agreement(rank)};
  }
  Executor* operator->() { return executor_.get(); }
  Stream stream() const { return stream_; }

 private:
  CpuDevice device_;
  std::unique_ptr<AttentionBackend> backend_;
  Stream stream_;
  std::unique_ptr<Executor> executor_;
};

// Tensors of `rows` rows, zeros.
struct Tensors {
  explicit Tensors(int64_t rows)
      : wide(static_cast<size_t>(rows * 6)),
        outputs(static_cast<size_t>(rows * 6)),
        narrow(static_cast<size_t>(rows * 3)),
        sums(static_cast<size_t>(rows * 2)) {
    q = DenseTensor(wide.data(), DType::kFloat64, rows, 2, 3);
    o = DenseTensor(outputs.data(), DType::kFloat64, rows, 2, 3);
    k = DenseTensor(narrow.data(), DType::kFloat64, rows, 1, 3);
    lse = DenseTensor(sums.data(), DType::kFloat64, rows, 2, 1);
  }
  ForwardTensors forward() const {
    return {.q = q, .k = k, .v = k, .o = o, .lse = lse};
  }
  std::vector<double> wide, outputs, narrow, sums;
  Tensor q, o, k, lse;
};

const TestPlan kLocal{.ranks = 1, .micro_batches = {{{0, 4, 0, 1}}}};

// Runs body(rank) on threads.
void OnThreads(int32_t ranks, const std::function<void(int32_t)>& body) {
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("Executor: refuses wrong options", "[executor][errors]") {
  InProcessPool pool(1);
  Rank rank(&pool, 0);
  ExecutorOptions options = Rank::Small();
  ExecutorResources resources = rank.Resources(&pool, 0);
  const auto status = [&] {
    return Executor::Create(options, resources).status();
  };
  REQUIRE(status().ok());
  SECTION("heads") {
    options.problem.q_heads = 3;
    options.problem.kv_heads = 2;
    CHECK_THAT(status().message(), Catch::Contains("q_heads is 3"));
  }
  SECTION("gradients in another type") {
    options.grad_comm_dtype = DType::kBFloat16;
    CHECK_THAT(status().message(),
               Catch::Contains("grad_comm_dtype is bfloat16"));
  }
  SECTION("16-bit gradients round a ring") {
    options.problem.dtype = DType::kBFloat16;
    options.exchange = Exchange::kRing;
    CHECK(status().ok());
    options.grad_comm_dtype = DType::kFloat32;
    CHECK(status().ok());
    options.grad_comm_dtype = DType::kBFloat16;
    CHECK(status().code() == StatusCode::kInvalidArgument);
  }
  SECTION("exchange") {
    options.exchange = static_cast<Exchange>(9);
    CHECK_THAT(status().message(), Catch::Contains("exchange 9"));
  }
  SECTION("null") {
    resources.agreement = nullptr;
    CHECK(status() == InvalidArgument("agreement is null"));
    resources.backend = nullptr;
    CHECK(status() == InvalidArgument("backend is null"));
    resources.device = nullptr;
    CHECK(status() == InvalidArgument("device is null"));
  }
}

TEST_CASE("Executor: a wrong tensor is named, and fails for good",
          "[executor][errors]") {
  const Tensors good(4);
  InProcessPool pool(1);
  Rank rank(&pool, 0);
  const Result<Step> step = rank->Prepare(kLocal.ForRank(0));
  REQUIRE(step.ok());
  ForwardTensors t = good.forward();
  std::string want;
  SECTION("rows") {
    t.k.rows = 3;
    want = "k has 3 rows, not 4";
  }
  SECTION("type") {
    t.v.dtype = DType::kFloat32;
    want = "v is float32, not float64";
  }
  SECTION("shape") {
    t.q.heads = 1;
    want = "q is [rows, 1, 3], not [rows, 2, 3]";
  }
  SECTION("null") {
    t.o.data = nullptr;
    want = "o has no data";
  }
  SECTION("lse") {
    t.lse.dim = 2;
    want = "lse is [rows, 2, 2], not [rows, 2, 1]";
  }
  const Status status = rank->Forward(*step, 0, t, rank.stream());
  CHECK(status == InvalidArgument(want));
  CHECK(rank->Forward(*step, 0, good.forward(), rank.stream()) == status);
  CHECK(rank->Poll() == status);
  CHECK(rank->Wait(kWait) == status);
  CHECK(rank->Prepare(kLocal.ForRank(0)).status() == status);
}

TEST_CASE("Executor: refuses another micro-batch or step",
          "[executor][errors]") {
  InProcessPool pool(1);
  InProcessPool other_pool(1);
  Rank rank(&pool, 0);
  Rank other(&other_pool, 0);
  const Step step = *rank->Prepare(kLocal.ForRank(0));
  const Tensors t(4);
  SECTION("micro-batch") {
    CHECK_THAT(rank->Forward(step, 1, t.forward(), rank.stream()).message(),
               Catch::Contains("micro_batch is 1, where the step has 1"));
  }
  SECTION("step") {
    CHECK_THAT(other->Forward(step, 0, t.forward(), other.stream()).message(),
               Catch::Contains("another executor's"));
  }
}

TEST_CASE("Executor: refuses a plan that is not its rank's",
          "[executor][errors]") {
  InProcessPool pool(1);
  Rank rank(&pool, 0);
  RankPlan plan = kLocal.ForRank(0);
  SECTION("rank") {
    plan.rank = 3;
    CHECK_THAT(rank->Prepare(plan).status().message(),
               Catch::Contains("rank 3's, where this is rank 0"));
  }
  SECTION("chunks") {
    plan.chunk_plan.emplace();
    CHECK(rank->Prepare(plan).status().code() == StatusCode::kUnsupported);
  }
  SECTION("segments") {
    plan.micro_batches[0].row_count = 9;
    CHECK_THAT(rank->Prepare(plan).status().message(),
               Catch::Contains("row_count is 9"));
  }
}

// One rank holds another plan: every rank is told at once, no exchange is
// called, and all go on with the right plan.
TEST_CASE("Executor: ranks with different plans disagree and go on",
          "[executor][errors]") {
  const TestPlan plan{.ranks = 3, .micro_batches = {{{0, 7, 0, 3}}}};
  InProcessPool pool(3);
  std::vector<Status> first(3);
  std::vector<Status> second(3);
  OnThreads(3, [&](int32_t r) {
    Rank rank(&pool, r);
    RankPlan mine = plan.ForRank(r);
    if (r == 1) {
      mine.digest = "other";
      mine.blocks.clear();
    }
    const auto i = static_cast<size_t>(r);
    first[i] = rank->Prepare(mine).status();
    second[i] = rank->Prepare(plan.ForRank(r)).status();
  });
  for (size_t r = 0; r < 3; ++r) {
    CHECK(first[r].code() == StatusCode::kFailedPrecondition);
    CHECK_THAT(first[r].message(), Catch::Contains("rank 1 with plan other"));
    CHECK(second[r].ToString() == "OK");
  }
}

TEST_CASE("Executor: a wait ends at its time limit", "[executor][errors]") {
  // Work may use these until the rank ends.
  std::atomic<bool> open = false;
  const Tensors t(4);
  InProcessPool pool(1);
  Rank rank(&pool, 0);
  const Step step = *rank->Prepare(kLocal.ForRank(0));
  REQUIRE(EnqueueOnHost(rank.stream(), [&](const Status&) {
            while (!open) std::this_thread::yield();
            return Status();
          }).ok());
  // Does not block, although the stream does.
  REQUIRE(rank->Forward(step, 0, t.forward(), rank.stream()).ok());
  const Status status = rank->Wait(std::chrono::milliseconds(20));
  CHECK(status.code() == StatusCode::kDeadlineExceeded);
  CHECK(pool.communicators(0)->Poll().code() == StatusCode::kAborted);
  CHECK(rank->Poll() == status);
  open = true;
}

TEST_CASE("Executor: an abort reaches the others", "[executor][errors]") {
  const TestPlan plan{.ranks = 2, .micro_batches = {{{0, 6, 0, 2}}}};
  InProcessPool pool(
      2, {.time_limit = std::chrono::minutes(5), .poison_buffers = false});
  std::vector<Status> statuses(2);
  OnThreads(2, [&](int32_t r) {
    const Tensors t(3);  // work may use it until the rank ends
    Rank rank(&pool, r);
    const Step step = *rank->Prepare(plan.ForRank(r));
    Status& status = statuses[static_cast<size_t>(r)];
    if (r == 1) {
      rank->Abort({StatusCode::kInternal, "enough"});
      status = rank->Poll();
      return;
    }
    status = rank->Forward(step, 0, t.forward(), rank.stream());
    if (status.ok()) status = rank->Wait(kWait);
  });
  CHECK(statuses[1] == Status(StatusCode::kInternal, "enough"));
  CHECK(statuses[0] ==
        Status(StatusCode::kAborted, "rank 1: INTERNAL: enough"));
}

TEST_CASE("Executor: steps grow its buffers", "[executor][errors]") {
  InProcessPool pool(2);
  std::atomic<int> right = 0;
  OnThreads(2, [&](int32_t r) {
    std::unique_ptr<Step> kept;
    {
      Rank rank(&pool, r);
      for (const int32_t tokens : {6, 40, 8, 300}) {
        const TestPlan plan{.ranks = 2, .micro_batches = {{{0, tokens, 0, 2}}}};
        Result<Step> step = rank->Prepare(plan.ForRank(r));
        if (!step.ok()) return;
        const Tensors t(tokens / 2);
        if (!rank->Forward(*step, 0, t.forward(), rank.stream()).ok()) return;
        if (!rank->Wait(kWait).ok()) return;
        kept = std::make_unique<Step>(*std::move(step));
      }
      // The device lives as long as the rank: give the step back before.
      kept.reset();
    }
    ++right;
  });
  CHECK(right == 2);
}

}  // namespace skrull::exec::testing
