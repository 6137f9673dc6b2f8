#include "skrull/tests/cuda/rank_pool.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>
#include <utility>

#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/tests/cuda/collected_sequence.h"

namespace skrull::exec::testing {
namespace {

constexpr auto kWait = std::chrono::seconds(60);

int64_t CountSequences(const TestPlan& plan) {
  int64_t count = 0;
  for (const Placements& mb : plan.micro_batches) {
    count += static_cast<int64_t>(mb.size());
  }
  return count;
}

}  // namespace

RankTensors MakeTensors(const RankMicroBatch& mb, const SequenceData* data,
                        const RunOptions& options) {
  const AttentionProblem& p = options.executor.problem;
  const int64_t rows = mb.row_count;
  const auto make = [&](int32_t heads) {
    return HostTensor(p.dtype, rows, heads, p.head_dim, options.gap);
  };
  RankTensors t;
  t.q = make(p.q_heads);
  t.k = make(p.kv_heads);
  t.v = make(p.kv_heads);
  t.d_o = make(p.q_heads);
  t.o = make(p.q_heads);
  t.dq = make(p.q_heads);
  t.dk = make(p.kv_heads);
  t.dv = make(p.kv_heads);
  t.lse = HostTensor(AccumulatorOf(p.dtype), rows, p.q_heads, 1,
                     options.head_major_lse ? 0 : options.gap,
                     options.head_major_lse);
  int64_t row = 0;
  for (const RankSegment& segment : mb.segments) {
    const SequenceData& s = data[segment.sequence];
    for (const TokenRange& range : {segment.low, segment.high}) {
      for (int64_t i = range.begin; i < range.end; ++i, ++row) {
        for (const auto& [to, from] :
             {std::pair(&t.q, &s.q), std::pair(&t.k, &s.k),
              std::pair(&t.v, &s.v), std::pair(&t.d_o, &s.d_o)}) {
          for (int32_t h = 0; h < from->heads; ++h) {
            for (int32_t c = 0; c < from->dim; ++c) {
              to->Set(row, h, c, from->at(i, h, c));
            }
          }
        }
      }
    }
  }
  return t;
}

namespace {

// All layers forward, then all backward, as in training. tensors[i] is layer
// i / micro-batches.
Status RunRank(Executor* executor, const RankPlan& plan, Stream stream,
               const std::vector<RankTensors*>& tensors) {
  Result<Step> step = executor->Prepare(plan);
  SKRULL_EXEC_RETURN_IF_ERROR(step.status());
  const size_t count = plan.micro_batches.size();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const RankTensors& t = *tensors[i];
    SKRULL_EXEC_RETURN_IF_ERROR(executor->Forward(
        *step, static_cast<int32_t>(i % count),
        {t.q.view(), t.k.view(), t.v.view(), t.o.view(), t.lse.view()},
        stream));
  }
  for (size_t i = tensors.size(); i-- > 0;) {
    const RankTensors& t = *tensors[i];
    SKRULL_EXEC_RETURN_IF_ERROR(executor->Backward(
        *step, static_cast<int32_t>(i % count),
        {t.q.view(), t.k.view(), t.v.view(), t.o.view(), t.lse.view(),
         t.d_o.view(), t.dq.view(), t.dk.view(), t.dv.view()},
        stream));
  }
  return executor->Wait(kWait);
}

// Lets all threads pass when all have come.
class Gate {
 public:
  explicit Gate(int32_t count) : missing_(count) {}
  void Pass() {
    std::unique_lock lock(mutex_);
    if (--missing_ == 0) condition_.notify_all();
    condition_.wait(lock, [&] { return missing_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  int32_t missing_;
};

}  // namespace

RankPlan TestPlan::ForRank(int32_t rank) const {
  RankPlan plan;
  plan.digest = "test";
  plan.rank = rank;
  std::set<Block> blocks;
  for (const Placements& placements : micro_batches) {
    RankMicroBatch mb;
    mb.segments = RankSegments(placements, rank);
    for (const RankSegment& segment : mb.segments) {
      mb.row_count += segment.rows();
    }
    for (const SequencePlacement& p : placements) {
      mb.token_count += p.token_count;
      if (p.degree > 1) blocks.insert(p.block());
    }
    plan.batch_token_count += mb.token_count;
    plan.micro_batches.push_back(std::move(mb));
  }
  plan.blocks.assign(blocks.begin(), blocks.end());
  return plan;
}

TestPlan RandomPlan(std::mt19937_64* random, int32_t max_ranks, double budget) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(*random);
  };
  PoolShape pool;
  pool.cp_size = static_cast<int32_t>(pick(1, max_ranks));
  pool.dp_size = static_cast<int32_t>(pick(1, max_ranks / pool.cp_size));
  const std::vector<int32_t> degrees = AllowedDegrees(BlockScope::kPool, pool);
  // All local, all sharded, or a mixture.
  const int64_t kind = pick(0, 5);
  TestPlan plan{.ranks = pool.ranks(), .micro_batches = {}};
  int32_t sequence = 0;
  for (int64_t mb = pick(1, 2); mb > 0; --mb) {
    Placements placements;
    const int64_t count = pick(0, 3) == 0 ? pick(1, 64) : pick(1, 8);
    for (int64_t i = 0; i < count; ++i) {
      int64_t tokens = pick(1, 400);
      if (pick(0, 2) == 0) tokens = pick(1, 2 * pool.ranks() + 1);
      if (pick(0, 9) == 0) tokens = 1;
      while (tokens > 1 && double(tokens) * double(tokens) > budget) {
        tokens /= 2;
      }
      budget -= double(tokens) * double(tokens);
      int32_t degree = degrees[static_cast<size_t>(
          pick(0, static_cast<int64_t>(degrees.size()) - 1))];
      if (kind == 0) degree = 1;
      if (kind == 1) degree = degrees.back();
      const std::vector<Block> blocks =
          AllowedBlocks(BlockScope::kPool, pool, degree);
      const Block block = blocks[static_cast<size_t>(
          pick(0, static_cast<int64_t>(blocks.size()) - 1))];
      placements.push_back({.sequence = sequence++,
                            .token_count = static_cast<int32_t>(tokens),
                            .first_rank = block.first_rank,
                            .degree = block.degree});
    }
    plan.micro_batches.push_back(std::move(placements));
  }
  return plan;
}

SequenceData RandomSequence(std::mt19937_64* random,
                            const AttentionProblem& problem, int64_t rows) {
  std::normal_distribution<double> normal;
  const auto make = [&](int32_t heads) {
    Dense dense(rows, heads, problem.head_dim);
    for (double& value : dense.values) {
      WithHostType(problem.dtype, [&]<class T>(T) {
        value = ConvertHost<double>(ConvertHost<T>(normal(*random)));
      });
    }
    return dense;
  };
  SequenceData data;
  data.q = make(problem.q_heads);
  data.k = make(problem.kv_heads);
  data.v = make(problem.kv_heads);
  data.d_o = make(problem.q_heads);
  return data;
}

std::vector<SequenceData> RandomData(std::mt19937_64* random,
                                     const AttentionProblem& problem,
                                     const TestPlan& plan, int32_t layers) {
  const int64_t count = CountSequences(plan);
  std::vector<SequenceData> data(static_cast<size_t>(layers * count));
  for (int32_t layer = 0; layer < layers; ++layer) {
    for (const Placements& mb : plan.micro_batches) {
      for (const SequencePlacement& p : mb) {
        data[static_cast<size_t>(layer * count + p.sequence)] =
            RandomSequence(random, problem, p.token_count);
      }
    }
  }
  return data;
}

void RunRanks(int32_t ranks, const RunOptions& options, const RankBody& body) {
  InProcessPool pool(ranks, options.pool);
  Result<std::unique_ptr<AttentionBackend>> backend =
      CreateCpuAttention(options.backend_threads);
  Gate gate(ranks);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Device> device =
          options.new_device ? options.new_device(rank)
                             : std::make_unique<CpuDevice>(
                                   HostDeviceOptions{.poison_buffers = true});
      RankParts parts{.device = device.get(),
                      .backend = backend->get(),
                      .communicators = pool.communicators(rank),
                      .agreement = pool.agreement(rank)};
      if (options.change_parts) options.change_parts(rank, &parts);
      const Stream stream = *device->CreateStream(StreamPriority::kNormal);
      body(rank,
           {.device = parts.device,
            .backend = parts.backend,
            .communicators = parts.communicators,
            .agreement = parts.agreement},
           stream, [&] {
             gate.Pass();
             (void)device->Synchronize(stream);
           });
      device->DestroyStream(stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

RunResult RunPlan(const TestPlan& plan, const std::vector<SequenceData>& data,
                  const RunOptions& options) {
  const auto ranks = static_cast<size_t>(plan.ranks);
  RunResult result;
  result.statuses.resize(ranks);
  result.statuses_after.resize(ranks);
  result.tensors.resize(plan.micro_batches.size() *
                        static_cast<size_t>(options.layers));
  for (auto& mb : result.tensors) mb.resize(ranks);
  RunRanks(plan.ranks, options,
           [&](int32_t rank, const ExecutorResources& resources, Stream stream,
               const std::function<void()>& all_end) {
             const auto r = static_cast<size_t>(rank);
             const RankPlan rank_plan = plan.ForRank(rank);
             std::vector<RankTensors*> tensors;
             const size_t count = rank_plan.micro_batches.size();
             for (size_t i = 0; i < result.tensors.size(); ++i) {
               result.tensors[i][r] =
                   MakeTensors(rank_plan.micro_batches[i % count],
                               data.data() + static_cast<int64_t>(i / count) *
                                                 CountSequences(plan),
                               options);
               tensors.push_back(&result.tensors[i][r]);
             }
             auto executor = Executor::Create(options.executor, resources);
             result.statuses[r] = executor.status();
             if (!executor.ok()) {
               resources.communicators->Abort(executor.status());
             } else {
               result.statuses[r] =
                   RunRank(executor->get(), rank_plan, stream, tensors);
             }
             all_end();
             if (executor.ok()) result.statuses_after[r] = (*executor)->Poll();
           });
  return result;
}

double Errors::worst() const { return std::max({o, lse, dq, dk, dv}); }

double Errors::kv_norm() const {
  return kv_all2 > 0 ? std::sqrt(kv_off2 / kv_all2) : 0;
}

Errors CompareWithDense(const TestPlan& plan,
                        const std::vector<SequenceData>& data,
                        const AttentionProblem& problem,
                        const RunResult& result) {
  Errors errors;
  for (size_t i = 0; i < result.tensors.size(); ++i) {
    const size_t mb = i % plan.micro_batches.size();
    const size_t layer = i / plan.micro_batches.size();
    const size_t first = layer * static_cast<size_t>(CountSequences(plan));
    for (const SequencePlacement& p : plan.micro_batches[mb]) {
      const SequenceData& s = data[first + static_cast<size_t>(p.sequence)];
      CollectedSequence collected(problem, p.token_count);
      for (int32_t rank = 0; rank < plan.ranks; ++rank) {
        const RankTensors& t = result.tensors[i][static_cast<size_t>(rank)];
        int64_t row = 0;
        for (const RankSegment& segment :
             RankSegments(plan.micro_batches[mb], rank)) {
          if (segment.sequence != p.sequence) {
            row += segment.rows();
            continue;
          }
          for (const TokenRange& range : {segment.low, segment.high}) {
            for (int64_t at = range.begin; at < range.end; ++at, ++row) {
              collected.Take(t, row, at);
            }
          }
        }
      }
      collected.Compare(s, problem, &errors);
    }
  }
  return errors;
}

bool SameBits(const RunResult& a, const RunResult& b) {
  for (size_t mb = 0; mb < a.tensors.size(); ++mb) {
    for (size_t r = 0; r < a.tensors[mb].size(); ++r) {
      const RankTensors& x = a.tensors[mb][r];
      const RankTensors& y = b.tensors[mb][r];
      if (x.o.bytes() != y.o.bytes() || x.lse.bytes() != y.lse.bytes() ||
          x.dq.bytes() != y.dq.bytes() || x.dk.bytes() != y.dk.bytes() ||
          x.dv.bytes() != y.dv.bytes()) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace skrull::exec::testing
