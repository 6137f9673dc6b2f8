// Runs a plan on N ranks, threads of this process, and compares what they
// compute with the oracle.
#ifndef SKRULL_TESTS_CUDA_RANK_POOL_H_
#define SKRULL_TESTS_CUDA_RANK_POOL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "skrull/cuda/cpu/host_device.h"
#include "skrull/cuda/executor.h"
#include "skrull/cuda/in_process/in_process_pool.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/rank_plan.h"
#include "skrull/tests/cuda/dense_attention.h"
#include "skrull/tests/cuda/host_tensor.h"

namespace skrull::exec::testing {

using Placements = std::vector<SequencePlacement>;

// A plan without a planner: micro-batches of placements on `ranks` ranks.
struct TestPlan {
  int32_t ranks = 1;
  std::vector<Placements> micro_batches;

  // Its share for one rank.
  RankPlan ForRank(int32_t rank) const;
};

// Lengths 1 .. 400, on random blocks of a random pool of up to `max_ranks`; the
// sum of the squared lengths stays below `budget`.
TestPlan RandomPlan(std::mt19937_64* random, int32_t max_ranks,
                    double budget = 2e5);

// The data of one sequence, rounded to the problem's type.
struct SequenceData {
  Dense q, k, v, d_o;
};
SequenceData RandomSequence(std::mt19937_64* random,
                            const AttentionProblem& problem, int64_t rows);

// What one rank's executor works with, replaceable by a test.
struct RankParts {
  Device* device = nullptr;
  AttentionBackend* backend = nullptr;
  CommunicatorSet* communicators = nullptr;
  StepAgreement* agreement = nullptr;
};

struct RunOptions {
  ExecutorOptions executor;
  InProcessOptions pool = {.time_limit = std::chrono::seconds(30),
                           .poison_buffers = true};
  // Makes a rank's device; default: CpuDevice with poisoned buffers.
  std::function<std::unique_ptr<Device>(int32_t rank)> new_device;
  // Called with a rank's parts before its executor is made.
  std::function<void(int32_t rank, RankParts* parts)> change_parts;
  int backend_threads = 1;
  int32_t gap = 0;  // of the tensors' strides
  bool head_major_lse = false;
  int32_t layers = 1;  // each with data of its own
};

// A rank's rows of one micro-batch in one layer.
struct RankTensors {
  HostTensor q, k, v, d_o;
  HostTensor o, lse, dq, dk, dv;
};

struct RunResult {
  // [rank]: what its calls returned, until the first failure, and after all
  // ranks had ended.
  std::vector<Status> statuses;
  std::vector<Status> statuses_after;
  // [layer * micro-batches + micro-batch][rank]
  std::vector<std::vector<RankTensors>> tensors;
};

// Of a rank's rows, with the values of data[sequence].
RankTensors MakeTensors(const RankMicroBatch& mb, const SequenceData* data,
                        const RunOptions& options);

// Runs `body` for each rank, on a thread of its own. A body calls all_end once,
// when it has made its last call: it returns when all ranks did, and their
// streams have run empty.
using RankBody =
    std::function<void(int32_t rank, const ExecutorResources& resources,
                       Stream stream, const std::function<void()>& all_end)>;
void RunRanks(int32_t ranks, const RunOptions& options, const RankBody& body);

// data[layer * sequences + sequence], as the plan's placements number them.
RunResult RunPlan(const TestPlan& plan, const std::vector<SequenceData>& data,
                  const RunOptions& options);

// Largest errors over all rows of all ranks, relative to the largest value of
// the sequence's reference or 1. Infinite if a value is not a number, or a row
// is missing.
struct Errors {
  double o = 0, lse = 0, dq = 0, dk = 0, dv = 0;
  // Of dK and dV of all sequences: squares of the errors and of the values.
  double kv_off2 = 0, kv_all2 = 0;
  double worst() const;
  // Error of dK and dV in the Euclidean norm.
  double kv_norm() const;
};
Errors CompareWithDense(const TestPlan& plan,
                        const std::vector<SequenceData>& data,
                        const AttentionProblem& problem,
                        const RunResult& result);

// The same bits everywhere?
bool SameBits(const RunResult& a, const RunResult& b);

// Random data for all sequences of the plan in each layer.
std::vector<SequenceData> RandomData(std::mt19937_64* random,
                                     const AttentionProblem& problem,
                                     const TestPlan& plan, int32_t layers = 1);

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_RANK_POOL_H_
