// Backends by name, and backends that are tables of functions.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>

#include "skrull/cuda/backend_registry.h"
#include "skrull/cuda/user_backend.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

Status StatusOf(const std::string& name) {
  return CreateAttentionBackend(
             name, {.directory = SKRULL_TEST_PLUGIN_DIR, .cpu_threads = 1})
      .status();
}

double& At(const skrull_attention_tensor& t, int64_t row, int32_t h,
           int32_t c) {
  return static_cast<double*>(
      t.data)[row * t.row_stride + h * t.head_stride + c];
}

// A trainer's kernel: dense float64 attention of each segment.
struct Kernel {
  int calls = 0;
  bool fails = false;

  static int32_t Attend(void* context, const skrull_attention_call* call,
                        bool backward, char* message, int64_t bytes) {
    auto* self = static_cast<Kernel*>(context);
    ++self->calls;
    if (self->fails) {
      std::snprintf(message, static_cast<size_t>(bytes), "no power");
      return static_cast<int32_t>(StatusCode::kDeviceError);
    }
    const auto load = [](const skrull_attention_tensor& t, int32_t first,
                         int32_t rows) {
      Dense dense(rows, t.heads, t.dim);
      for (int32_t r = 0; r < rows; ++r) {
        for (int32_t h = 0; h < t.heads; ++h) {
          for (int32_t c = 0; c < t.dim; ++c) {
            dense.at(r, h, c) = At(t, first + r, h, c);
          }
        }
      }
      return dense;
    };
    const auto store = [](const Dense& dense, const skrull_attention_tensor& t,
                          int32_t first) {
      for (int64_t r = 0; r < dense.rows; ++r) {
        for (int32_t h = 0; h < t.heads; ++h) {
          for (int32_t c = 0; c < t.dim; ++c) {
            At(t, first + r, h, c) = dense.at(r, h, c);
          }
        }
      }
    };
    for (int32_t s = 0; s < call->bounds.segments; ++s) {
      const int32_t q = call->cu_q[s];
      const int32_t kv = call->cu_kv[s];
      const int32_t n = call->cu_q[s + 1] - q;
      const int32_t m = call->cu_kv[s + 1] - kv;
      const Dense d_o = backward ? load(call->d_o, q, n)
                                 : Dense(n, call->q.heads, call->q.dim);
      const DenseResult r = DenseAttention(
          load(call->q, q, n), load(call->k, kv, m), load(call->v, kv, m), d_o,
          call->problem.scale, call->bounds.mask == 1);
      if (backward) {
        store(r.dq, call->dq, q);
        store(r.dk, call->dk, kv);
        store(r.dv, call->dv, kv);
      } else {
        store(r.o, call->o, q);
        store(r.lse, call->lse, q);
      }
    }
    return 0;
  }
  static int32_t Forward(void* context, const skrull_attention_call* call,
                         char* message, int64_t bytes) {
    return Attend(context, call, false, message, bytes);
  }
  static int32_t Backward(void* context, const skrull_attention_call* call,
                          char* message, int64_t bytes) {
    return Attend(context, call, true, message, bytes);
  }
  static int32_t Supports(void*, const skrull_attention_problem* problem,
                          int32_t, char* message, int64_t bytes) {
    if (problem->dtype == 3) return 0;
    std::snprintf(message, static_cast<size_t>(bytes), "float64 only");
    return static_cast<int32_t>(StatusCode::kUnsupported);
  }

  skrull_attention_table Table() {
    skrull_attention_table table{};
    table.struct_bytes = sizeof(table);
    table.context = this;
    table.name = "dense";
    table.supports = &Supports;
    table.forward = &Forward;
    table.backward = &Backward;
    return table;
  }
};

TestPlan MixedPlan() {
  return {.ranks = 3,
          .micro_batches = {{{0, 9, 0, 1}, {1, 20, 0, 3}, {2, 5, 1, 2}}}};
}

RunOptions UserOptions(AttentionBackend* backend) {
  RunOptions options;
  options.executor.problem = {.dtype = DType::kFloat64,
                              .q_heads = 2,
                              .kv_heads = 1,
                              .head_dim = 4,
                              .scale = 0.5};
  options.change_parts = [backend](int32_t, RankParts* parts) {
    parts->backend = backend;
  };
  return options;
}

}  // namespace

TEST_CASE("Backends: cpu is built in", "[backends]") {
  const auto cpu = CreateAttentionBackend("cpu", {});
  REQUIRE(cpu.ok());
  CHECK((*cpu)->name() == "cpu");
}

TEST_CASE("Backends: a library is opened by name", "[backends]") {
  const auto good =
      CreateAttentionBackend("good", {.directory = SKRULL_TEST_PLUGIN_DIR});
  INFO(good.status().ToString());
  REQUIRE(good.ok());
  CHECK((*good)->name() == "good");
  CHECK((*good)->kv_tail_rows() == 7);
  // Its own errors pass.
  CHECK((*good)->Prepare({}, {}, Pass::kForward).status() ==
        Status(StatusCode::kUnsupported, "it is a plug-in"));
}

TEST_CASE("Backends: what is missing is named", "[backends]") {
  CHECK(StatusOf("cudnn").code() == StatusCode::kNotFound);
  CHECK_THAT(StatusOf("cudnn").message(),
             Catch::Contains("libskrull_backend_cudnn.so") &&
                 Catch::Contains("Built in: cpu"));
  CHECK_THAT(CreateAttentionBackend("cudnn", {}).status().message(),
             Catch::Contains("libskrull_backend_cudnn.so"));
  CHECK(StatusOf("broken").code() == StatusCode::kNotFound);
  CHECK_THAT(StatusOf("broken").message(),
             Catch::Contains("skrull_test_function_of_a_missing_library"));
  CHECK(StatusOf("empty").code() == StatusCode::kUnsupported);
  CHECK_THAT(StatusOf("old").message(), Catch::Contains("version -1"));
  for (const char* name : {"", "../cpu", "CUDNN", "a.b"}) {
    CHECK(StatusOf(name).code() == StatusCode::kInvalidArgument);
  }
  CHECK_THAT(StatusOf("user").message(),
             Catch::Contains("CreateUserAttention"));
}

TEST_CASE("User backend: computes a plan", "[backends]") {
  Kernel kernel;
  const auto backend = *CreateUserAttention(kernel.Table());
  CHECK(backend->name() == "dense");
  RunOptions options = UserOptions(backend.get());
  std::mt19937_64 random(1);
  const TestPlan plan = MixedPlan();
  // A kernel counts without a lock, so each rank has its own.
  Kernel others[2];
  std::unique_ptr<AttentionBackend> other_backends[2] = {
      *CreateUserAttention(others[0].Table()),
      *CreateUserAttention(others[1].Table())};
  options.change_parts = [&](int32_t rank, RankParts* parts) {
    parts->backend = rank == 0 ? backend.get() : other_backends[rank - 1].get();
  };
  const auto data = RandomData(&random, options.executor.problem, plan);
  const RunResult result = RunPlan(plan, data, options);
  for (const Status& status : result.statuses) {
    CHECK(status.ToString() == "OK");
  }
  CHECK(CompareWithDense(plan, data, options.executor.problem, result).worst() <
        1e-10);
  // Local and sharded, forward and backward.
  CHECK(kernel.calls == 4);
}

TEST_CASE("User backend: its refusals and failures pass", "[backends]") {
  Kernel kernel;
  const auto backend = *CreateUserAttention(kernel.Table());
  CHECK(backend->Supports({.dtype = DType::kFloat32,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .head_dim = 1,
                           .scale = 1},
                          Pass::kForward) ==
        Status(StatusCode::kUnsupported, "dense: float64 only"));
  kernel.fails = true;
  const RunOptions options = UserOptions(backend.get());
  std::mt19937_64 random(1);
  const TestPlan plan{.ranks = 1, .micro_batches = {{{0, 3, 0, 1}}}};
  const auto data = RandomData(&random, options.executor.problem, plan);
  CHECK(RunPlan(plan, data, options).statuses_after[0] ==
        Status(StatusCode::kDeviceError, "dense: no power"));
}

TEST_CASE("User backend: refuses a wrong table", "[backends]") {
  Kernel kernel;
  const auto message = [](const skrull_attention_table& table) {
    const Status status = CreateUserAttention(table).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    return status.message();
  };
  skrull_attention_table table = kernel.Table();
  table.struct_bytes = 8;
  CHECK_THAT(message(table), Catch::Contains("struct_bytes is 8"));
  table = kernel.Table();
  table.forward = nullptr;
  CHECK_THAT(message(table), Catch::Contains("forward is null"));
  table = kernel.Table();
  table.backward = nullptr;
  CHECK_THAT(message(table), Catch::Contains("backward is null"));
  table = kernel.Table();
  table.lse_order = 3;
  CHECK_THAT(message(table), Catch::Contains("lse_order is 3"));
}

}  // namespace skrull::exec::testing
