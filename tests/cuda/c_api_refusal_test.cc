// The C interface under hostile arguments, and other versions.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "skrull/cuda/c_api/skrull_exec.h"
#include "skrull/cuda/maps.h"
#include "skrull/tests/cuda/c_api_rank.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {

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
  SECTION("an older one has zeros for what came later") {
    grown.options.struct_bytes = offsetof(skrull_device_options, directory);
    grown.options.directory = reinterpret_cast<const char*>(1);  // never read
    CHECK(skrull_device_create(&grown.options, &device) == SKRULL_OK);
    skrull_device_destroy(device);
  }
  SECTION("one that asks for what this version has not is refused") {
    grown.later = 1 << 16;
    CHECK(skrull_device_create(&grown.options, &device) == SKRULL_UNSUPPORTED);
    CHECK_THAT(skrull_exec_last_error(), Catch::Contains("byte 34"));
  }
  SECTION("no struct has these sizes") {
    for (const int64_t bytes : {int64_t{0}, int64_t{-1}, int64_t{8},
                                int64_t{sizeof(skrull_device_options)} - 1,
                                int64_t{sizeof(skrull_device_options)} + 1,
                                int64_t{sizeof(skrull_device_options)} - 16,
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
  skrull_backend_info wants{};
  for (const int32_t code : {
           skrull_device_create(nullptr, &device),
           skrull_device_create_stream(nullptr, &stream),
           skrull_device_destroy_stream(nullptr, stream),
           skrull_device_synchronize(nullptr, stream),
           skrull_backend_create(nullptr, &backend),
           skrull_backend_create_user(nullptr, &backend),
           skrull_backend_describe(nullptr, &wants),
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

  skrull_device* device = nullptr;
  skrull_device_options d{};
  d.struct_bytes = sizeof(d);
  CheckRefused(skrull_device_create(&d, &device), "name is NULL");
  d.name = "../evil";
  CheckRefused(skrull_device_create(&d, &device), "no name");
  d.name = "absent";
  CHECK(skrull_device_create(&d, &device) == SKRULL_NOT_FOUND);
  d.name = "cpu";
  d.poison_buffers = 2;
  CheckRefused(skrull_device_create(&d, &device), "poison_buffers is 2");
  d.poison_buffers = 0;
  d.ordinal = 1;
  CheckRefused(skrull_device_create(&d, &device), "ordinal 1");
  CHECK(device == nullptr);

  skrull_backend* backend = nullptr;
  skrull_backend_options b{};
  b.struct_bytes = sizeof(b);
  CheckRefused(skrull_backend_create(&b, &backend), "name is NULL");
  b.name = "../evil";
  CheckRefused(skrull_backend_create(&b, &backend), "no name");
  b.name = "absent";
  CHECK(skrull_backend_create(&b, &backend) == SKRULL_NOT_FOUND);
  b.name = "cpu";
  b.reserved = 1;
  CHECK(skrull_backend_create(&b, &backend) == SKRULL_UNSUPPORTED);
  CHECK_THAT(skrull_exec_last_error(), Catch::Contains("reserved is 1"));
  b.reserved = 0;
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

  device = NewDevice();
  backend = NewBackend();
  skrull_executor* executor = nullptr;
  const auto executor_with = [&](const auto& change) {
    skrull_executor_options options = ExecutorOptionsOf(kProblem);
    change(&options);
    return skrull_executor_create(&options, device, backend, pool[0],
                                  &executor);
  };
  CHECK(executor_with([](auto* o) { o->reserved = 1; }) == SKRULL_UNSUPPORTED);
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
