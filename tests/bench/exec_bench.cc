// Time of the plan executor: see docs/benchmarks.md for what each row means.
// Results are checked once, outside the timed loops.
#include <benchmark/benchmark.h>
#include <time.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/executor.h"
#include "skrull/cuda/host_queue.h"
#include "skrull/cuda/in_process/in_process_pool.h"
#include "skrull/cuda/maps.h"
#include "skrull/cuda/ring_maps.h"
#include "skrull/planner/layout.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

void Require(const Status& status) {
  if (status.ok()) return;
  std::cerr << status.ToString() << '\n';
  std::abort();
}

double CpuSeconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

// `count` sequences of 400 to 8,000 tokens, every fourth local.
TestPlan PackedPlan(int32_t ranks, int32_t count) {
  std::mt19937_64 random(1);
  TestPlan plan{.ranks = ranks, .micro_batches = {{}}};
  for (int32_t i = 0; i < count; ++i) {
    const auto tokens = static_cast<int32_t>(400 + random() % 7600);
    const bool local = i % 4 == 0;
    plan.micro_batches[0].push_back(
        {i, tokens, local ? i % ranks : 0, local ? 1 : ranks});
  }
  return plan;
}

void BM_Maps(benchmark::State& state) {
  const auto ranks = static_cast<int32_t>(state.range(0));
  const RankMicroBatch mb = PackedPlan(ranks, 64).ForRank(1).micro_batches[0];
  for (auto _ : state) {
    Result<MicroBatchMaps> maps = BuildMaps(mb, 1, 0.5);
    if (!maps.ok()) std::abort();
    benchmark::DoNotOptimize(maps);
  }
}
BENCHMARK(BM_Maps)->Name("Maps")->Arg(8)->Arg(16)->Unit(
    benchmark::kMicrosecond);

void BM_RingMaps(benchmark::State& state) {
  const auto ranks = static_cast<int32_t>(state.range(0));
  const RankMicroBatch mb = PackedPlan(ranks, 64).ForRank(1).micro_batches[0];
  const MicroBatchMaps maps = *BuildMaps(mb, 1, 0.5);
  for (auto _ : state) {
    benchmark::DoNotOptimize(BuildRingSteps(mb, maps));
  }
}
BENCHMARK(BM_RingMaps)->Name("RingMaps")->Arg(8)->Unit(benchmark::kMicrosecond);

// Passes calls on and takes the time that they compute, on the stream's thread.
class TimedBackend final : public AttentionBackend {
 public:
  explicit TimedBackend(std::unique_ptr<AttentionBackend> backend)
      : backend_(std::move(backend)) {}

  double seconds() const { return seconds_; }
  double cpu_seconds() const { return cpu_seconds_; }
  void Reset() { seconds_ = cpu_seconds_ = 0; }

  std::string_view name() const override { return backend_->name(); }
  MemoryKind memory() const override { return backend_->memory(); }
  Status Supports(const AttentionProblem& problem, Pass pass) const override {
    return backend_->Supports(problem, pass);
  }
  LseOrder lse_order() const override { return backend_->lse_order(); }
  int32_t kv_tail_rows() const override { return backend_->kv_tail_rows(); }
  Result<int64_t> Prepare(const AttentionProblem& problem,
                          const SegmentBounds& bounds, Pass pass) override {
    return backend_->Prepare(problem, bounds, pass);
  }
  Status Forward(const AttentionForward& call, Workspace workspace,
                 Stream stream) override {
    return Time(stream,
                [&] { return backend_->Forward(call, workspace, stream); });
  }
  Status Backward(const AttentionBackward& call, Workspace workspace,
                  Stream stream) override {
    return Time(stream,
                [&] { return backend_->Backward(call, workspace, stream); });
  }

 private:
  template <class Call>
  Status Time(Stream stream, const Call& call) {
    SKRULL_EXEC_RETURN_IF_ERROR(EnqueueOnHost(stream, [this](const Status&) {
      begin_ = std::chrono::steady_clock::now();
      cpu_begin_ = CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
      return Status();
    }));
    SKRULL_EXEC_RETURN_IF_ERROR(call());
    return EnqueueOnHost(stream, [this](const Status&) {
      seconds_ += std::chrono::duration<double>(
                      std::chrono::steady_clock::now() - begin_)
                      .count();
      cpu_seconds_ += CpuSeconds(CLOCK_THREAD_CPUTIME_ID) - cpu_begin_;
      return Status();
    });
  }

  const std::unique_ptr<AttentionBackend> backend_;
  std::chrono::steady_clock::time_point begin_;
  double cpu_begin_ = 0;
  double seconds_ = 0;
  double cpu_seconds_ = 0;
};

// One rank with its tensors, filled at random.
struct BenchRank {
  BenchRank(InProcessPool* pool, const TestPlan& plan, int32_t rank,
            const ExecutorOptions& options)
      : backend(*CreateCpuAttention(1)),
        stream(*device.CreateStream(StreamPriority::kNormal)),
        executor(*Executor::Create(options,
                                   {.device = &device,
                                    .backend = &backend,
                                    .communicators = pool->communicators(rank),
                                    .agreement = pool->agreement(rank)})),
        rank_plan(plan.ForRank(rank)) {
    const AttentionProblem& p = options.problem;
    const int64_t rows = rank_plan.micro_batches[0].row_count;
    const auto make = [&](int32_t heads, int32_t dim) {
      std::vector<float>& values =
          memory.emplace_back(static_cast<size_t>(rows * heads * dim));
      std::mt19937 random(static_cast<unsigned>(memory.size()));
      for (float& value : values) {
        value = static_cast<float>(random() % 1000) / 500 - 1;
      }
      return DenseTensor(values.data(), DType::kFloat32, rows, heads, dim);
    };
    memory.reserve(9);
    tensors = {.q = make(p.q_heads, p.head_dim),
               .k = make(p.kv_heads, p.head_dim),
               .v = make(p.kv_heads, p.head_dim),
               .o = make(p.q_heads, p.head_dim),
               .lse = make(p.q_heads, 1),
               .d_o = make(p.q_heads, p.head_dim),
               .dq = make(p.q_heads, p.head_dim),
               .dk = make(p.kv_heads, p.head_dim),
               .dv = make(p.kv_heads, p.head_dim)};
  }
  ~BenchRank() {
    executor.reset();
    device.DestroyStream(stream);
  }

  // One layer, both passes.
  void Run(const Step& step) {
    const BackwardTensors& t = tensors;
    Require(executor->Forward(
        step, 0, {.q = t.q, .k = t.k, .v = t.v, .o = t.o, .lse = t.lse},
        stream));
    Require(executor->Backward(step, 0, t, stream));
    Require(executor->Wait(std::chrono::minutes(10)));
  }

  CpuDevice device;
  TimedBackend backend;
  Stream stream;
  std::unique_ptr<Executor> executor;
  RankPlan rank_plan;
  std::vector<std::vector<float>> memory;
  BackwardTensors tensors;
};

// The executor that is timed computes what it should.
void Verify(Exchange exchange) {
  RunOptions options;
  options.executor.problem = {.dtype = DType::kFloat32,
                              .q_heads = 2,
                              .kv_heads = 1,
                              .head_dim = 64,
                              .scale = 0.125};
  options.executor.exchange = exchange;
  const TestPlan plan{
      .ranks = 2,
      .micro_batches = {{{0, 100, 0, 1}, {1, 100, 1, 1}, {2, 300, 0, 2}}}};
  std::mt19937_64 random(1);
  const auto data = RandomData(&random, options.executor.problem, plan);
  const RunResult result = RunPlan(plan, data, options);
  if (CompareWithDense(plan, data, options.executor.problem, result).worst() >
      1e-3) {
    std::cerr << "the executor's results are wrong\n";
    std::abort();
  }
}

// Two ranks with 8K rows each: four local sequences of 1K, and half of one of
// 8K. Everything but attention: CPU time of the whole process without that of
// the attention calls, as a share of it; and the same of the wall clock, where
// waiting for the other rank counts, too.
void BM_Layer(benchmark::State& state) {
  const auto exchange = static_cast<Exchange>(state.range(0));
  Verify(exchange);
  ExecutorOptions options;
  options.problem = {.dtype = DType::kFloat32,
                     .q_heads = 2,
                     .kv_heads = 1,
                     .head_dim = 64,
                     .scale = 0.125};
  options.exchange = exchange;
  TestPlan plan{.ranks = 2, .micro_batches = {{}}};
  for (int32_t i = 0; i < 8; ++i) {
    plan.micro_batches[0].push_back({i, 1024, i % 2, 1});
  }
  plan.micro_batches[0].push_back({8, 8192, 0, 2});
  InProcessPool pool(
      2, {.time_limit = std::chrono::minutes(10), .poison_buffers = false});
  double attention = 0;
  double attention_cpu = 0;
  double wall = 0;
  double cpu = 0;
  for (auto _ : state) {
    std::mutex mutex;
    std::vector<std::thread> threads;
    const double cpu_begin = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
    double set_up_cpu = 0;
    for (int32_t r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        BenchRank rank(&pool, plan, r, options);
        Result<Step> step = rank.executor->Prepare(rank.rank_plan);
        Require(step.status());
        const double set_up = CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
        const auto begin = std::chrono::steady_clock::now();
        rank.Run(*step);
        const std::chrono::duration<double> took =
            std::chrono::steady_clock::now() - begin;
        const std::lock_guard lock(mutex);
        wall += took.count();
        set_up_cpu += set_up;
        attention += rank.backend.seconds();
        attention_cpu += rank.backend.cpu_seconds();
      });
    }
    for (std::thread& thread : threads) thread.join();
    cpu += CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin - set_up_cpu;
  }
  const auto layers = static_cast<double>(state.iterations());
  state.counters["attention_s"] = attention / 2 / layers;
  state.counters["other_cpu_percent"] =
      100 * (cpu - attention_cpu) / attention_cpu;
  state.counters["other_wall_percent"] = 100 * (wall - attention) / attention;
}
BENCHMARK(BM_Layer)
    ->Name("Layer")
    ->Arg(static_cast<int>(Exchange::kAllGather))
    ->Arg(static_cast<int>(Exchange::kRing))
    ->ArgName("exchange")
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1)
    ->Repetitions(1)  // seconds each
    ->UseRealTime();

}  // namespace
}  // namespace skrull::exec::testing

BENCHMARK_MAIN();
