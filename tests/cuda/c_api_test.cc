// The C interface: hostile arguments, versions, lifetimes, failures, and that
// it computes what the C++ interface does.
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "skrull/cuda/c_api/skrull_exec.h"
#include "skrull/cuda/maps.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

constexpr char kDigest[] =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

// A RankPlan as the arrays of the C interface.
class PlanArrays {
 public:
  PlanArrays(const RankPlan& plan, int32_t ranks, std::string digest = kDigest)
      : digest_(std::move(digest)) {
    for (const RankMicroBatch& mb : plan.micro_batches) {
      for (const RankSegment& s : mb.segments) {
        segments.push_back({s.sequence, s.token_count, s.block.first_rank,
                            s.block.degree, s.low.begin, s.low.end,
                            s.high.begin, s.high.end});
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

skrull_device* NewDevice() {
  skrull_device_options options{};
  options.struct_bytes = sizeof(options);
  options.name = "cpu";
  options.poison_buffers = 1;
  skrull_device* device = nullptr;
  REQUIRE(skrull_device_create(&options, &device) == SKRULL_OK);
  return device;
}

skrull_backend* NewBackend() {
  skrull_backend_options options{};
  options.struct_bytes = sizeof(options);
  options.name = "cpu";
  options.cpu_threads = 1;
  skrull_backend* backend = nullptr;
  REQUIRE(skrull_backend_create(&options, &backend) == SKRULL_OK);
  return backend;
}

skrull_comm_options CommOptions(int32_t rank, int32_t ranks,
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

std::vector<skrull_comm*> NewPool(int32_t ranks) {
  std::vector<skrull_comm*> comms;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const skrull_comm_options options =
        CommOptions(rank, ranks, comms.empty() ? nullptr : comms[0]);
    comms.push_back(nullptr);
    REQUIRE(skrull_comm_create(&options, &comms.back()) == SKRULL_OK);
  }
  return comms;
}

skrull_executor_options ExecutorOptionsOf(const AttentionProblem& problem) {
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

const AttentionProblem kProblem = {.dtype = DType::kFloat64,
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

skrull_attention_tensor ToC(const Tensor& t) {
  return {t.data,
          t.rows,
          t.row_stride,
          t.head_stride,
          static_cast<int32_t>(t.dtype),
          t.heads,
          t.dim,
          0};
}

// Runs work(rank) on a thread a rank; returns what it returned and said.
struct Answer {
  int32_t code = 0;
  std::string message;
};
std::vector<Answer> OnRanks(int32_t ranks,
                            const std::function<int32_t(int32_t)>& work) {
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

void CheckRefused(int32_t code, const std::string& text) {
  INFO(skrull_exec_last_error());
  CHECK(code == SKRULL_INVALID_ARGUMENT);
  CHECK_THAT(skrull_exec_last_error(), Catch::Contains(text));
}

const TestPlan kTwoRanks = {
    .ranks = 2,
    .micro_batches = {{{0, 5, 0, 1}, {1, 4, 1, 1}, {2, 13, 0, 2}},
                      {{3, 7, 0, 2}}}};

}  // namespace

TEST_CASE("C API: names and versions", "[c_api]") {
  CHECK(skrull_exec_version() == SKRULL_EXEC_VERSION);
  for (int32_t code = 0; code < 12; ++code) {
    CHECK(skrull_exec_status_name(code) ==
          StatusCodeName(static_cast<StatusCode>(code)));
  }
  CHECK(std::string(skrull_exec_status_name(-5)) == "UNKNOWN");
  CHECK(std::string(skrull_exec_status_name(99)) == "UNKNOWN");
}

TEST_CASE("C API: the last error is the thread's own", "[c_api]") {
  CheckRefused(skrull_device_create(nullptr, nullptr), "device is NULL");
  std::string other = "?";
  std::thread([&] { other = skrull_exec_last_error(); }).join();
  CHECK(other.empty());
  // A call that succeeds leaves it.
  skrull_device_destroy(NewDevice());
  CHECK_THAT(skrull_exec_last_error(), Catch::Contains("device is NULL"));
  // However long a message, it ends.
  const std::string name(5000, 'x');
  skrull_device_options options{};
  options.struct_bytes = sizeof(options);
  options.name = name.c_str();
  skrull_device* device = nullptr;
  CHECK(skrull_device_create(&options, &device) == SKRULL_NOT_FOUND);
  CHECK(std::strlen(skrull_exec_last_error()) == 1023);
  CHECK(device == nullptr);
}

TEST_CASE("C API: struct_bytes tells versions apart", "[c_api]") {
  struct {
    skrull_device_options options;
    int64_t later;
  } grown{};
  grown.options.struct_bytes = sizeof(grown);
  grown.options.name = "cpu";
  skrull_device* device = nullptr;
  SECTION("a larger struct whose news are zero is fine") {
    CHECK(skrull_device_create(&grown.options, &device) == SKRULL_OK);
    skrull_device_destroy(device);
  }
  SECTION("one that asks for what this version has not is refused") {
    grown.later = 1 << 16;
    CHECK(skrull_device_create(&grown.options, &device) == SKRULL_UNSUPPORTED);
    CHECK_THAT(skrull_exec_last_error(), Catch::Contains("byte 26"));
  }
  SECTION("no struct has these sizes") {
    for (const int64_t bytes : {int64_t{0}, int64_t{-1}, int64_t{8},
                                int64_t{sizeof(skrull_device_options)} - 1,
                                std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::min()}) {
      grown.options.struct_bytes = bytes;
      CheckRefused(skrull_device_create(&grown.options, &device),
                   "struct_bytes is " + std::to_string(bytes));
    }
  }
}

TEST_CASE("C API: NULL is refused, or fine where documented", "[c_api]") {
  skrull_device_destroy(nullptr);
  skrull_backend_destroy(nullptr);
  skrull_comm_destroy(nullptr);
  skrull_plan_destroy(nullptr);
  skrull_step_destroy(nullptr);
  skrull_executor_destroy(nullptr);
  void* stream = nullptr;
  int32_t number = 0;
  skrull_device* device = nullptr;
  skrull_backend* backend = nullptr;
  skrull_comm* comm = nullptr;
  skrull_plan* plan = nullptr;
  skrull_step* step = nullptr;
  skrull_executor* executor = nullptr;
  skrull_micro_batch_info info{};
  for (const int32_t code : {
           skrull_device_create(nullptr, &device),
           skrull_device_create_stream(nullptr, &stream),
           skrull_device_destroy_stream(nullptr, stream),
           skrull_device_synchronize(nullptr, stream),
           skrull_backend_create(nullptr, &backend),
           skrull_backend_create_user(nullptr, &backend),
           skrull_comm_create(nullptr, &comm),
           skrull_comm_abort(nullptr, "x"),
           skrull_plan_create(nullptr, &plan),
           skrull_plan_micro_batch_count(nullptr, &number),
           skrull_plan_micro_batch(nullptr, 0, &info),
           skrull_plan_positions(nullptr, 0, &number, 1),
           skrull_plan_sequences(nullptr, 0, &number, 1),
           skrull_plan_cu_seqlens(nullptr, 0, &number, 1),
           skrull_executor_create(nullptr, device, backend, comm, &executor),
           skrull_executor_prepare(nullptr, plan, &step),
           skrull_executor_forward(nullptr, step, 0, nullptr, nullptr),
           skrull_executor_backward(nullptr, step, 0, nullptr, nullptr),
           skrull_executor_poll(nullptr),
           skrull_executor_wait(nullptr, 1),
           skrull_executor_abort(nullptr, "x"),
       }) {
    CHECK(code == SKRULL_INVALID_ARGUMENT);
  }
}

TEST_CASE("C API: options out of range are refused by name", "[c_api]") {
  skrull_comm* comm = nullptr;
  const auto comm_with = [&](const auto& change) {
    skrull_comm_options options = CommOptions(0, 2, nullptr);
    change(&options);
    return skrull_comm_create(&options, &comm);
  };
  CheckRefused(comm_with([](auto* o) { o->ranks = 0; }), "ranks is 0");
  CheckRefused(comm_with([](auto* o) { o->ranks = -3; }), "ranks is -3");
  CheckRefused(comm_with([](auto* o) { o->ranks = 1 << 30; }), "ranks is");
  CheckRefused(comm_with([](auto* o) { o->rank = 2; }), "rank is 2");
  CheckRefused(comm_with([](auto* o) { o->rank = -1; }), "rank is -1");
  CheckRefused(comm_with([](auto* o) { o->name = nullptr; }), "name is NULL");
  CheckRefused(comm_with([](auto* o) { o->time_limit_seconds = -1; }),
               "time_limit_seconds");
  CheckRefused(comm_with([](auto* o) { o->time_limit_seconds = NAN; }),
               "time_limit_seconds");
  CHECK(comm_with([](auto* o) { o->name = "pigeons"; }) == SKRULL_NOT_FOUND);

  skrull_backend* backend = nullptr;
  skrull_backend_options b{};
  b.struct_bytes = sizeof(b);
  CheckRefused(skrull_backend_create(&b, &backend), "name is NULL");
  b.name = "../evil";
  CheckRefused(skrull_backend_create(&b, &backend), "no name");
  b.name = "absent";
  CHECK(skrull_backend_create(&b, &backend) == SKRULL_NOT_FOUND);
  b.name = "cpu";
  b.cpu_threads = -1;
  CheckRefused(skrull_backend_create(&b, &backend), "threads is -1");

  // A pool's ranks have one owner each.
  const std::vector<skrull_comm*> pool = NewPool(2);
  CheckRefused(comm_with([&](auto* o) { o->peer = pool[1]; }), "taken");
  CheckRefused(comm_with([&](auto* o) {
                 o->peer = pool[1];
                 o->ranks = 3;
                 o->rank = 2;
               }),
               "2 ranks");

  skrull_device* device = NewDevice();
  backend = NewBackend();
  skrull_executor* executor = nullptr;
  const auto executor_with = [&](const auto& change) {
    skrull_executor_options options = ExecutorOptionsOf(kProblem);
    change(&options);
    return skrull_executor_create(&options, device, backend, pool[0],
                                  &executor);
  };
  CheckRefused(executor_with([](auto* o) { o->dtype = 7; }), "dtype");
  CheckRefused(executor_with([](auto* o) { o->dtype = -1; }), "dtype");
  CheckRefused(executor_with([](auto* o) { o->q_heads = 0; }), "q_heads");
  CheckRefused(executor_with([](auto* o) { o->kv_heads = -2; }), "kv_heads");
  CheckRefused(executor_with([](auto* o) { o->head_dim = 0; }), "head_dim");
  CheckRefused(executor_with([](auto* o) { o->scale = NAN; }), "scale");
  CheckRefused(executor_with([](auto* o) { o->deterministic = 2; }),
               "deterministic");
  CheckRefused(executor_with([](auto* o) { o->exchange = 9; }), "exchange");
  CheckRefused(executor_with([](auto* o) { o->grad_comm_accumulator = -1; }),
               "grad_comm_accumulator");
  CHECK(executor == nullptr);
  skrull_device_destroy(device);
  skrull_backend_destroy(backend);
  for (skrull_comm* one : pool) skrull_comm_destroy(one);
}

TEST_CASE("C API: a plan that is none is refused", "[c_api]") {
  PlanArrays arrays(kTwoRanks.ForRank(0), 2);
  skrull_plan* plan = nullptr;
  const auto with = [&](const std::function<void(skrull_rank_plan*)>& change) {
    skrull_rank_plan given = arrays.Get();
    change(&given);
    return skrull_plan_create(&given, &plan);
  };
  REQUIRE(with([](auto*) {}) == SKRULL_OK);
  skrull_plan_destroy(plan);
  plan = nullptr;
  CheckRefused(with([](auto* p) { p->digest = nullptr; }), "digest");
  CheckRefused(with([](auto* p) { p->ranks = 0; }), "ranks is 0");
  CheckRefused(with([](auto* p) { p->rank = 2; }), "rank is 2");
  CheckRefused(with([](auto* p) { p->micro_batch_count = -1; }),
               "micro_batch_count");
  CheckRefused(with([](auto* p) { p->block_count = -1; }), "block_count");
  CheckRefused(with([](auto* p) { p->block_count = 1 << 30; }), "block_count");
  CheckRefused(with([](auto* p) { p->segments = nullptr; }), "segments");
  CheckRefused(with([](auto* p) { p->segment_offsets = nullptr; }),
               "segment_offsets");
  CheckRefused(with([](auto* p) { p->token_counts = nullptr; }),
               "token_counts");
  CheckRefused(with([](auto* p) { p->blocks = nullptr; }), "blocks");
  const std::vector<double> weights = {0.5, NAN};
  CheckRefused(with([&](auto* p) { p->token_weights = weights.data(); }),
               "token_weights[1]");

  const auto edited = [&](const std::function<void(PlanArrays*)>& edit) {
    const PlanArrays before = arrays;
    edit(&arrays);
    const int32_t code = with([](auto*) {});
    arrays = before;
    return code;
  };
  CheckRefused(edited([](auto* a) { a->offsets[1] = -1; }),
               "segment_offsets[1]");
  CheckRefused(edited([](auto* a) { a->offsets[0] = 1; }),
               "segment_offsets[0]");
  CheckRefused(edited([](auto* a) { a->offsets[1] = 5; }),
               "segment_offsets[2]");
  CheckRefused(edited([](auto* a) { a->token_counts[0] = 2; }),
               "micro-batch 0: token_count");
  CheckRefused(edited([](auto* a) { a->token_counts[1] = -2; }),
               "micro-batch 1: token_count");
  CheckRefused(edited([](auto* a) { a->blocks[1] = 3; }), "block 0");
  CheckRefused(edited([](auto* a) { a->segments[1].degree = 1 << 30; }),
               "micro-batch 0: segment 1");
  CheckRefused(edited([](auto* a) { a->segments[1].first_rank = -1; }),
               "segment 1");
  CheckRefused(edited([](auto* a) { a->segments[0].token_count = 0; }),
               "segment 0");
  CheckRefused(edited([](auto* a) { a->segments[0].first_rank = 1; }),
               "sequence 0");
  CheckRefused(edited([](auto* a) { a->segments[1].low_end += 1; }),
               "sequence 2");
  CheckRefused(
      edited([](auto* a) { std::swap(a->segments[0], a->segments[1]); }),
      "sequence 0");
  for (const int64_t nonsense : {std::numeric_limits<int64_t>::min(),
                                 std::numeric_limits<int64_t>::max()}) {
    for (int64_t skrull_segment::* field :
         {&skrull_segment::low_begin, &skrull_segment::low_end,
          &skrull_segment::high_begin, &skrull_segment::high_end}) {
      CheckRefused(edited([&](auto* a) { a->segments[1].*field = nonsense; }),
                   "segment 1");
    }
  }
  CHECK(plan == nullptr);
}

TEST_CASE("C API: a plan says what the maps do", "[c_api]") {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const TestPlan plan = RandomPlan(&random, 8);
    for (int32_t rank = 0; rank < plan.ranks; ++rank) {
      const RankPlan mine = plan.ForRank(rank);
      const PlanArrays arrays(mine, plan.ranks);
      const skrull_rank_plan given = arrays.Get();
      skrull_plan* made = nullptr;
      REQUIRE(skrull_plan_create(&given, &made) == SKRULL_OK);
      int32_t count = -1;
      REQUIRE(skrull_plan_micro_batch_count(made, &count) == SKRULL_OK);
      REQUIRE(count == static_cast<int32_t>(mine.micro_batches.size()));
      for (int32_t i = 0; i < count; ++i) {
        const RankMicroBatch& mb = mine.micro_batches[static_cast<size_t>(i)];
        skrull_micro_batch_info info{};
        info.struct_bytes = sizeof(info);
        REQUIRE(skrull_plan_micro_batch(made, i, &info) == SKRULL_OK);
        const auto maps = BuildMaps(mb, rank, 0.5);
        REQUIRE(maps.ok());
        CHECK(info.rows == mb.row_count);
        CHECK(info.local_rows == maps->local_rows);
        CHECK(info.block_count == static_cast<int64_t>(maps->blocks.size()));
        CHECK(info.token_count == mb.token_count);
        CHECK(info.token_weight ==
              Approx(double(mb.row_count) / double(mine.batch_token_count)));
        const std::vector<int32_t> offsets = CuSeqlens(mb.segments);
        int32_t longest = 0;
        for (size_t k = 1; k < offsets.size(); ++k) {
          longest = std::max(longest, offsets[k] - offsets[k - 1]);
        }
        CHECK(info.max_seqlen == longest);
        std::vector<int32_t> positions(static_cast<size_t>(info.rows));
        std::vector<int32_t> sequences(static_cast<size_t>(info.rows));
        std::vector<int32_t> cu(static_cast<size_t>(info.cu_seqlens_count));
        REQUIRE(skrull_plan_positions(made, i, positions.data(), info.rows) ==
                SKRULL_OK);
        REQUIRE(skrull_plan_sequences(made, i, sequences.data(), info.rows) ==
                SKRULL_OK);
        REQUIRE(skrull_plan_cu_seqlens(made, i, cu.data(),
                                       info.cu_seqlens_count) == SKRULL_OK);
        CHECK(positions == RowPositions(mb.segments));
        CHECK(sequences == RowSequences(mb.segments));
        CHECK(cu == offsets);
        CheckRefused(
            skrull_plan_positions(made, i, positions.data(), info.rows + 1),
            "count is");
        CheckRefused(skrull_plan_cu_seqlens(made, i, cu.data(), -1),
                     "count is -1");
      }
      CheckRefused(skrull_plan_positions(made, count, nullptr, 0),
                   "micro_batch is");
      CheckRefused(skrull_plan_positions(made, -1, nullptr, 0),
                   "micro_batch is -1");
      skrull_plan_destroy(made);
    }
  }
}

TEST_CASE("C API: computes what the C++ interface does, bit by bit",
          "[c_api]") {
  for (const int32_t exchange : {0, 1}) {
    std::mt19937_64 random(7);
    RunOptions options;
    options.executor.problem = kProblem;
    options.executor.exchange = static_cast<Exchange>(exchange);
    const auto data = RandomData(&random, kProblem, kTwoRanks);
    const RunResult want = RunPlan(kTwoRanks, data, options);
    REQUIRE(want.statuses[0].ok());
    // The same inputs; outputs are written anew.
    RunResult got = RunPlan(kTwoRanks, data, options);
    for (auto& mb : got.tensors) {
      for (RankTensors& t : mb) {
        for (HostTensor* out : {&t.o, &t.lse, &t.dq, &t.dk, &t.dv}) {
          const Tensor view = out->view();
          for (int64_t row = 0; row < view.rows; ++row) {
            for (int32_t h = 0; h < view.heads; ++h) {
              for (int32_t c = 0; c < view.dim; ++c) out->Set(row, h, c, NAN);
            }
          }
        }
      }
    }
    const std::vector<skrull_comm*> pool = NewPool(2);
    std::vector<std::unique_ptr<CRank>> ranks;
    for (skrull_comm* comm : pool) {
      ranks.push_back(std::make_unique<CRank>(
          comm, [&](auto* o) { o->exchange = exchange; }));
    }
    const auto answers = OnRanks(2, [&](int32_t rank) {
      CRank& me = *ranks[static_cast<size_t>(rank)];
      if (const int32_t code = me.Prepare(kTwoRanks.ForRank(rank), 2)) {
        return code;
      }
      for (int32_t i = 0; i < 2; ++i) {
        const RankTensors& t =
            got.tensors[static_cast<size_t>(i)][static_cast<size_t>(rank)];
        skrull_forward_tensors f{};
        f.struct_bytes = sizeof(f);
        f.q = ToC(t.q.view());
        f.k = ToC(t.k.view());
        f.v = ToC(t.v.view());
        f.o = ToC(t.o.view());
        f.lse = ToC(t.lse.view());
        skrull_backward_tensors b{};
        b.struct_bytes = sizeof(b);
        b.q = f.q;
        b.k = f.k;
        b.v = f.v;
        b.o = f.o;
        b.lse = f.lse;
        b.d_o = ToC(t.d_o.view());
        b.dq = ToC(t.dq.view());
        b.dk = ToC(t.dk.view());
        b.dv = ToC(t.dv.view());
        if (const int32_t code = skrull_executor_forward(me.executor, me.step,
                                                         i, &f, me.stream)) {
          return code;
        }
        if (const int32_t code = skrull_executor_backward(me.executor, me.step,
                                                          i, &b, me.stream)) {
          return code;
        }
      }
      return skrull_executor_wait(me.executor, 60);
    });
    for (const Answer& answer : answers) {
      INFO(answer.message);
      CHECK(answer.code == SKRULL_OK);
    }
    CHECK(SameBits(want, got));
  }
}

TEST_CASE("C API: another plan on one rank is refused on all", "[c_api]") {
  const std::vector<skrull_comm*> pool = NewPool(2);
  std::vector<std::unique_ptr<CRank>> ranks;
  for (skrull_comm* comm : pool) ranks.push_back(std::make_unique<CRank>(comm));
  const bool none = GENERATE(false, true);
  auto answers = OnRanks(2, [&](int32_t rank) {
    CRank& me = *ranks[static_cast<size_t>(rank)];
    if (rank == 1 && none) {
      return skrull_executor_prepare(me.executor, nullptr, &me.step);
    }
    return me.Prepare(kTwoRanks.ForRank(rank), 2,
                      rank == 1 ? std::string(64, 'e') : kDigest);
  });
  for (const Answer& answer : answers) {
    INFO(answer.message);
    CHECK(answer.code == SKRULL_FAILED_PRECONDITION);
    CHECK_THAT(answer.message, Catch::Contains("rank 1"));
  }
  // The next one goes.
  answers = OnRanks(2, [&](int32_t rank) {
    return ranks[static_cast<size_t>(rank)]->Prepare(kTwoRanks.ForRank(rank),
                                                     2);
  });
  for (const Answer& answer : answers) CHECK(answer.code == SKRULL_OK);
}

TEST_CASE("C API: ranks compare plans through the caller's all-gather",
          "[c_api]") {
  struct Gather {
    std::mutex mutex;
    std::vector<std::vector<uint8_t>> seen;
    int32_t fail_with = 0;
  } gather;
  // Alone: "all" ranks are this one, and a second that holds what it says.
  const auto function = [](void* context, const uint8_t* mine, uint8_t* all,
                           char* message, int64_t bytes) -> int32_t {
    auto* state = static_cast<Gather*>(context);
    const std::lock_guard lock(state->mutex);
    state->seen.emplace_back(mine, mine + 32);
    std::memcpy(all, mine, 32);
    if (state->fail_with != 0) {
      std::memset(message, 'm', static_cast<size_t>(bytes));  // no end mark
    }
    return state->fail_with;
  };
  const std::vector<skrull_comm*> pool = NewPool(1);
  CRank me(pool[0], [&](auto* o) {
    o->gather_digests = function;
    o->gather_context = &gather;
  });
  const TestPlan plan = {.ranks = 1, .micro_batches = {{{0, 5, 0, 1}}}};
  CHECK(me.Prepare(plan.ForRank(0), 1) == SKRULL_OK);
  REQUIRE(gather.seen.size() == 1);
  CHECK(gather.seen[0][0] == 0x01);
  CHECK(gather.seen[0][31] == 0xef);
  gather.fail_with = GENERATE(7, 2, 1000, -1);
  skrull_step_destroy(me.step);
  me.step = nullptr;
  const int32_t code = me.Prepare(plan.ForRank(0), 1);
  CHECK(code == (gather.fail_with == 7 || gather.fail_with == 2
                     ? SKRULL_COMM_FAILED
                     : SKRULL_INTERNAL));
  CHECK_THAT(skrull_exec_last_error(), Catch::Contains("gather_digests: mmm"));
}

TEST_CASE("C API: a wrong argument of one rank ends the step of all",
          "[c_api]") {
  const int kind = GENERATE(0, 1, 2, 3, 4);
  INFO("kind " << kind);
  const std::vector<skrull_comm*> pool = NewPool(2);
  std::vector<std::unique_ptr<CRank>> ranks;
  for (skrull_comm* comm : pool) ranks.push_back(std::make_unique<CRank>(comm));
  std::mt19937_64 random(7);
  RunOptions options;
  options.executor.problem = kProblem;
  const auto data = RandomData(&random, kProblem, kTwoRanks);
  const RunResult run = RunPlan(kTwoRanks, data, options);
  const auto begin = std::chrono::steady_clock::now();
  const auto answers = OnRanks(2, [&](int32_t rank) {
    CRank& me = *ranks[static_cast<size_t>(rank)];
    if (const int32_t code = me.Prepare(kTwoRanks.ForRank(rank), 2)) {
      return code;
    }
    const RankTensors& t = run.tensors[0][static_cast<size_t>(rank)];
    skrull_forward_tensors f{};
    f.struct_bytes = sizeof(f);
    f.q = ToC(t.q.view());
    f.k = ToC(t.k.view());
    f.v = ToC(t.v.view());
    f.o = ToC(t.o.view());
    f.lse = ToC(t.lse.view());
    int32_t index = 0;
    void* stream = me.stream;
    const skrull_step* step = me.step;
    if (rank == 1) {
      if (kind == 0) f.struct_bytes = 3;
      if (kind == 1) stream = &index;
      if (kind == 2) index = 2;
      if (kind == 3) step = nullptr;
      if (kind == 4) f.k.rows -= 1;
    }
    const int32_t code =
        skrull_executor_forward(me.executor, step, index, &f, stream);
    if (code != SKRULL_OK) return code;
    return skrull_executor_wait(me.executor, 60);
  });
  INFO(answers[0].message << "\n" << answers[1].message);
  CHECK(answers[1].code == SKRULL_INVALID_ARGUMENT);
  CHECK(answers[0].code == SKRULL_ABORTED);
  CHECK_THAT(answers[0].message, Catch::Contains("rank 1"));
  // It stays so.
  CHECK(skrull_executor_poll(ranks[1]->executor) == SKRULL_INVALID_ARGUMENT);
  CHECK(skrull_executor_wait(ranks[0]->executor, 1) == SKRULL_ABORTED);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
}

TEST_CASE("C API: abort reaches the other rank", "[c_api]") {
  const bool by_executor = GENERATE(true, false);
  const std::vector<skrull_comm*> pool = NewPool(2);
  std::vector<std::unique_ptr<CRank>> ranks;
  for (skrull_comm* comm : pool) ranks.push_back(std::make_unique<CRank>(comm));
  const auto answers = OnRanks(2, [&](int32_t rank) {
    CRank& me = *ranks[static_cast<size_t>(rank)];
    if (rank == 0) return me.Prepare(kTwoRanks.ForRank(0), 2);
    return by_executor ? skrull_executor_abort(me.executor, "lunch")
                       : skrull_comm_abort(me.comm, "lunch");
  });
  CHECK(answers[1].code == SKRULL_OK);
  CHECK(answers[0].code == SKRULL_ABORTED);
  CHECK_THAT(answers[0].message,
             Catch::Contains("rank 1") && Catch::Contains("lunch"));
  CHECK(skrull_executor_poll(ranks[1]->executor) == SKRULL_ABORTED);
  CheckRefused(skrull_executor_wait(ranks[1]->executor, -1), "seconds");
  CheckRefused(skrull_executor_wait(ranks[1]->executor, NAN), "seconds");
}

TEST_CASE("C API: streams are those of the device", "[c_api]") {
  skrull_device* device = NewDevice();
  skrull_device* other = NewDevice();
  void* stream = nullptr;
  REQUIRE(skrull_device_create_stream(device, &stream) == SKRULL_OK);
  CHECK(skrull_device_synchronize(device, stream) == SKRULL_OK);
  CheckRefused(skrull_device_synchronize(other, stream), "not created");
  CheckRefused(skrull_device_synchronize(device, nullptr), "NULL");
  CheckRefused(skrull_device_destroy_stream(other, stream), "not created");
  CHECK(skrull_device_destroy_stream(device, stream) == SKRULL_OK);
  CheckRefused(skrull_device_destroy_stream(device, stream), "not created");
  // Goes with its device.
  REQUIRE(skrull_device_create_stream(device, &stream) == SKRULL_OK);
  skrull_device_destroy(device);
  skrull_device_destroy(other);
}

}  // namespace skrull::exec::testing
