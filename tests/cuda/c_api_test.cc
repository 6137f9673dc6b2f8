// The C interface computes what the C++ interface does, and fails as it does.
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "skrull/cuda/c_api/skrull_exec.h"
#include "skrull/cuda/maps.h"
#include "skrull/tests/cuda/c_api_rank.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {

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
        const skrull_forward_tensors f = ForwardToC(t);
        const skrull_backward_tensors b = BackwardToC(t);
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
    skrull_forward_tensors f = ForwardToC(t);
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

TEST_CASE("C API: a backend says what it asks of tensors", "[c_api]") {
  skrull_attention_table table{};
  table.struct_bytes = sizeof(table);
  table.lse_order = 2;
  table.kv_tail_rows = 65;
  table.forward = [](void*, const skrull_attention_call*, char*,
                     int64_t) -> int32_t { return SKRULL_OK; };
  table.backward = table.forward;
  skrull_backend* backend = nullptr;
  REQUIRE(skrull_backend_create_user(&table, &backend) == SKRULL_OK);
  skrull_backend_info info{};
  CheckRefused(skrull_backend_describe(backend, &info), "struct_bytes is 0");
  CheckRefused(skrull_backend_describe(backend, nullptr), "backend info");
  info.struct_bytes = sizeof(info);
  REQUIRE(skrull_backend_describe(backend, &info) == SKRULL_OK);
  CHECK(info.struct_bytes == sizeof(info));
  CHECK(info.lse_order == 2);
  CHECK(info.kv_tail_rows == 65);
  skrull_backend_destroy(backend);

  backend = NewBackend();
  REQUIRE(skrull_backend_describe(backend, &info) == SKRULL_OK);
  CHECK(info.lse_order == 0);
  CHECK(info.kv_tail_rows == 0);
  skrull_backend_destroy(backend);
}

TEST_CASE("C API: what the caller's own kernels return is passed on",
          "[c_api]") {
  skrull_attention_table table{};
  table.struct_bytes = sizeof(table);
  table.name = "mine";
  skrull_backend* backend = nullptr;
  CheckRefused(skrull_backend_create_user(&table, &backend), "forward is null");
  table.forward = [](void*, const skrull_attention_call* call, char* message,
                     int64_t) -> int32_t {
    // Before the executor's own tensors: rows of the plan.
    const char text[] = "out of ink";
    std::memcpy(message, text, sizeof(text));
    return call->q.rows == 5 ? SKRULL_DEVICE_ERROR : SKRULL_INTERNAL;
  };
  table.backward = table.forward;
  REQUIRE(skrull_backend_create_user(&table, &backend) == SKRULL_OK);
  skrull_device* device = NewDevice();
  void* stream = nullptr;
  REQUIRE(skrull_device_create_stream(device, &stream) == SKRULL_OK);
  const std::vector<skrull_comm*> pool = NewPool(1);
  const skrull_executor_options options = ExecutorOptionsOf(kProblem);
  skrull_executor* executor = nullptr;
  REQUIRE(skrull_executor_create(&options, device, backend, pool[0],
                                 &executor) == SKRULL_OK);
  const TestPlan plan = {.ranks = 1, .micro_batches = {{{0, 5, 0, 1}}}};
  const PlanArrays arrays(plan.ForRank(0), 1);
  const skrull_rank_plan given = arrays.Get();
  skrull_plan* made = nullptr;
  skrull_step* step = nullptr;
  REQUIRE(skrull_plan_create(&given, &made) == SKRULL_OK);
  REQUIRE(skrull_executor_prepare(executor, made, &step) == SKRULL_OK);
  std::vector<double> memory(100);
  const auto tensor = [&](int32_t heads, int32_t dim) {
    return ToC(DenseTensor(memory.data(), DType::kFloat64, 5, heads, dim));
  };
  skrull_forward_tensors f{};
  f.struct_bytes = sizeof(f);
  f.q = f.o = tensor(2, 3);
  f.k = f.v = tensor(1, 3);
  f.lse = tensor(2, 1);
  // Enqueued; what the kernel says comes later.
  CHECK(skrull_executor_forward(executor, step, 0, &f, stream) == SKRULL_OK);
  CHECK(skrull_executor_wait(executor, 60) == SKRULL_DEVICE_ERROR);
  CHECK_THAT(skrull_exec_last_error(), Catch::Contains("mine: out of ink"));
  skrull_plan_destroy(made);
  skrull_step_destroy(step);
  skrull_executor_destroy(executor);
  skrull_comm_destroy(pool[0]);
  skrull_backend_destroy(backend);
  skrull_device_destroy(device);
}

}  // namespace skrull::exec::testing
