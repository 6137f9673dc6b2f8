// One rank through the C interface, for its tests.
#ifndef SKRULL_TESTS_CUDA_C_API_RANK_H_
#define SKRULL_TESTS_CUDA_C_API_RANK_H_

#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "skrull/cuda/c_api/skrull_exec.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {

inline constexpr char kDigest[] =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

inline skrull_segment ToC(const RankSegment& s) {
  return {s.sequence,  s.token_count, s.block.first_rank, s.block.degree,
          s.low.begin, s.low.end,     s.high.begin,       s.high.end};
}

// A RankPlan as the arrays of the C interface.
class PlanArrays {
 public:
  PlanArrays(const RankPlan& plan, int32_t ranks, std::string digest = kDigest)
      : digest_(std::move(digest)) {
    for (const RankMicroBatch& mb : plan.micro_batches) {
      for (const RankSegment& s : mb.segments) {
        segments.push_back(ToC(s));
      }
      offsets.push_back(static_cast<int64_t>(segments.size()));
      token_counts.push_back(mb.token_count);
    }
    for (const Block& block : plan.blocks) {
      blocks.push_back(block.first_rank);
      blocks.push_back(block.degree);
    }
    rank_ = plan.rank;
    ranks_ = ranks;
  }

  skrull_rank_plan Get() const {
    skrull_rank_plan plan{};
    plan.struct_bytes = sizeof(plan);
    plan.digest = digest_.c_str();
    plan.rank = rank_;
    plan.ranks = ranks_;
    plan.micro_batch_count = static_cast<int32_t>(token_counts.size());
    plan.block_count = static_cast<int32_t>(blocks.size() / 2);
    plan.segment_offsets = offsets.data();
    plan.segments = segments.data();
    plan.token_counts = token_counts.data();
    plan.blocks = blocks.data();
    return plan;
  }

  std::vector<int64_t> offsets = {0};
  std::vector<skrull_segment> segments;
  std::vector<int64_t> token_counts;
  std::vector<int32_t> blocks;

 private:
  std::string digest_;
  int32_t rank_ = 0;
  int32_t ranks_ = 1;
};

inline skrull_device* NewDevice() {
  skrull_device_options options{};
  options.struct_bytes = sizeof(options);
  options.name = "cpu";
  options.poison_buffers = 1;
  skrull_device* device = nullptr;
  REQUIRE(skrull_device_create(&options, &device) == SKRULL_OK);
  return device;
}

inline skrull_backend* NewBackend() {
  skrull_backend_options options{};
  options.struct_bytes = sizeof(options);
  options.name = "cpu";
  options.cpu_threads = 1;
  skrull_backend* backend = nullptr;
  REQUIRE(skrull_backend_create(&options, &backend) == SKRULL_OK);
  return backend;
}

inline skrull_comm_options CommOptions(int32_t rank, int32_t ranks,
                                       const skrull_comm* peer) {
  skrull_comm_options options{};
  options.struct_bytes = sizeof(options);
  options.name = "in_process";
  options.rank = rank;
  options.ranks = ranks;
  options.time_limit_seconds = 120;
  options.peer = peer;
  return options;
}

inline std::vector<skrull_comm*> NewPool(int32_t ranks) {
  std::vector<skrull_comm*> comms;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const skrull_comm_options options =
        CommOptions(rank, ranks, comms.empty() ? nullptr : comms[0]);
    comms.push_back(nullptr);
    REQUIRE(skrull_comm_create(&options, &comms.back()) == SKRULL_OK);
  }
  return comms;
}

inline skrull_executor_options ExecutorOptionsOf(
    const AttentionProblem& problem) {
  skrull_executor_options options{};
  options.struct_bytes = sizeof(options);
  options.scale = problem.scale;
  options.dtype = static_cast<int32_t>(problem.dtype);
  options.q_heads = problem.q_heads;
  options.kv_heads = problem.kv_heads;
  options.head_dim = problem.head_dim;
  options.deterministic = 1;
  return options;
}

inline const AttentionProblem kProblem = {.dtype = DType::kFloat64,
                                          .q_heads = 2,
                                          .kv_heads = 1,
                                          .head_dim = 3,
                                          .scale = 0.5};

// One rank with all it needs.
struct CRank {
  explicit CRank(
      skrull_comm* given,
      const std::function<void(skrull_executor_options*)>& change = nullptr)
      : comm(given) {
    skrull_executor_options options = ExecutorOptionsOf(kProblem);
    if (change) change(&options);
    REQUIRE(skrull_device_create_stream(device, &stream) == SKRULL_OK);
    REQUIRE(skrull_executor_create(&options, device, backend, comm,
                                   &executor) == SKRULL_OK);
  }
  ~CRank() {
    skrull_step_destroy(step);
    skrull_executor_destroy(executor);
    skrull_backend_destroy(backend);
    skrull_device_destroy(device);
    skrull_comm_destroy(comm);
  }
  CRank(const CRank&) = delete;
  CRank& operator=(const CRank&) = delete;

  int32_t Prepare(const RankPlan& plan, int32_t ranks,
                  const std::string& digest = kDigest) {
    const PlanArrays arrays(plan, ranks, digest);
    const skrull_rank_plan given = arrays.Get();
    skrull_plan* made = nullptr;
    if (const int32_t code = skrull_plan_create(&given, &made); code != 0) {
      return code;
    }
    const int32_t code = skrull_executor_prepare(executor, made, &step);
    skrull_plan_destroy(made);
    return code;
  }

  skrull_device* device = NewDevice();
  skrull_backend* backend = NewBackend();
  skrull_comm* comm;
  void* stream = nullptr;
  skrull_executor* executor = nullptr;
  skrull_step* step = nullptr;
};

inline skrull_attention_tensor ToC(const Tensor& t) {
  return {t.data,
          t.rows,
          t.row_stride,
          t.head_stride,
          static_cast<int32_t>(t.dtype),
          t.heads,
          t.dim,
          0};
}

inline skrull_forward_tensors ForwardToC(const RankTensors& t) {
  skrull_forward_tensors f{};
  f.struct_bytes = sizeof(f);
  f.q = ToC(t.q.view());
  f.k = ToC(t.k.view());
  f.v = ToC(t.v.view());
  f.o = ToC(t.o.view());
  f.lse = ToC(t.lse.view());
  return f;
}

inline skrull_backward_tensors BackwardToC(const RankTensors& t) {
  skrull_backward_tensors b{};
  b.struct_bytes = sizeof(b);
  b.q = ToC(t.q.view());
  b.k = ToC(t.k.view());
  b.v = ToC(t.v.view());
  b.o = ToC(t.o.view());
  b.lse = ToC(t.lse.view());
  b.d_o = ToC(t.d_o.view());
  b.dq = ToC(t.dq.view());
  b.dk = ToC(t.dk.view());
  b.dv = ToC(t.dv.view());
  return b;
}

// Runs work(rank) on a thread a rank; returns what it returned and said.
struct Answer {
  int32_t code = 0;
  std::string message;
};
inline std::vector<Answer> OnRanks(
    int32_t ranks, const std::function<int32_t(int32_t)>& work) {
  std::vector<Answer> answers(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Answer& answer = answers[static_cast<size_t>(rank)];
      answer.code = work(rank);
      answer.message = skrull_exec_last_error();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

inline void CheckRefused(int32_t code, const std::string& text) {
  INFO(skrull_exec_last_error());
  CHECK(code == SKRULL_INVALID_ARGUMENT);
  CHECK_THAT(skrull_exec_last_error(), Catch::Contains(text));
}

inline const TestPlan kTwoRanks = {
    .ranks = 2,
    .micro_batches = {{{0, 5, 0, 1}, {1, 4, 1, 1}, {2, 13, 0, 2}},
                      {{3, 7, 0, 2}}}};

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_C_API_RANK_H_
