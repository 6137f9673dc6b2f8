// The chunk executor's C interface under hostile arguments.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "skrull/cuda/c_api/skrull_exec_chunks.h"
#include "skrull/tests/cuda/c_api_chunk_rank.h"

namespace skrull::exec::testing {
namespace {

// A split sequence and two whole ones on a group of two ranks.
TestChunks SplitAndWhole() {
  TestChunks chunks(1, 2, 1);
  chunks.AddSplit(0, {9, 6});
  chunks.AddWhole(0, {5, 4});
  return chunks;
}

}  // namespace

TEST_CASE("C API: NULL is refused by chunk functions, or fine",
          "[c_api][chunks]") {
  skrull_chunk_plan_destroy(nullptr);
  skrull_chunk_step_destroy(nullptr);
  skrull_chunk_executor_destroy(nullptr);
  int32_t number = 0;
  int64_t bytes = 0;
  skrull_chunk_plan* plan = nullptr;
  skrull_chunk_step* step = nullptr;
  skrull_chunk_executor* executor = nullptr;
  skrull_chunk_operation_info info{};
  for (const int32_t code : {
           skrull_chunk_plan_create(nullptr, &plan),
           skrull_chunk_plan_operation_count(nullptr, &number),
           skrull_chunk_plan_operation(nullptr, 0, &info),
           skrull_chunk_plan_positions(nullptr, 0, &number, 1),
           skrull_chunk_plan_sequences(nullptr, 0, &number, 1),
           skrull_chunk_executor_create(nullptr, nullptr, nullptr, nullptr,
                                        &executor),
           skrull_chunk_executor_prepare(nullptr, plan, &step),
           skrull_chunk_executor_forward(nullptr, step, 0, 0, nullptr, nullptr),
           skrull_chunk_executor_backward(nullptr, step, 0, 0, nullptr,
                                          nullptr),
           skrull_chunk_executor_store_bytes(nullptr, &bytes),
           skrull_chunk_executor_poll(nullptr),
           skrull_chunk_executor_wait(nullptr, 1),
           skrull_chunk_executor_abort(nullptr, "x"),
       }) {
    CHECK(code == SKRULL_INVALID_ARGUMENT);
  }
}

TEST_CASE("C API: options of a chunk executor are refused by name",
          "[c_api][chunks]") {
  const std::vector<skrull_comm*> pool = NewPool(1);
  skrull_device* device = NewDevice();
  skrull_backend* backend = NewBackend();
  skrull_chunk_executor* executor = nullptr;
  const auto with = [&](const auto& change) {
    skrull_chunk_executor_options options = ChunkOptionsOf(kProblem, 1);
    change(&options);
    return skrull_chunk_executor_create(&options, device, backend, pool[0],
                                        &executor);
  };
  CheckRefused(with([](auto* o) { o->struct_bytes = 8; }), "struct_bytes");
  CheckRefused(with([](auto* o) { o->dtype = 7; }), "dtype");
  CheckRefused(with([](auto* o) { o->q_heads = 0; }), "q_heads");
  CheckRefused(with([](auto* o) { o->scale = NAN; }), "scale");
  CheckRefused(with([](auto* o) { o->layer_count = 0; }), "layer_count is 0");
  CHECK(with([](auto* o) { o->reserved = 1; }) == SKRULL_UNSUPPORTED);
  CheckRefused(with([](auto* o) { o->deterministic = 2; }), "deterministic");
  CheckRefused(with([](auto* o) { o->grad_comm_accumulator = -1; }),
               "grad_comm_accumulator");
  const skrull_chunk_executor_options options = ChunkOptionsOf(kProblem, 1);
  CheckRefused(skrull_chunk_executor_create(&options, nullptr, backend, pool[0],
                                            &executor),
               "device is NULL");
  CHECK(executor == nullptr);
  REQUIRE(with([](auto*) {}) == SKRULL_OK);
  int64_t bytes = -1;
  CHECK(skrull_chunk_executor_store_bytes(executor, &bytes) == SKRULL_OK);
  CHECK(bytes == 0);
  CheckRefused(skrull_chunk_executor_store_bytes(executor, nullptr),
               "bytes is NULL");
  skrull_chunk_executor_destroy(executor);
  skrull_comm_destroy(pool[0]);
  skrull_backend_destroy(backend);
  skrull_device_destroy(device);
}

TEST_CASE("C API: a chunk plan that is none is refused", "[c_api][chunks]") {
  ChunkArrays arrays(SplitAndWhole().ForRank(0), 2);
  skrull_chunk_plan* plan = nullptr;
  const auto with =
      [&](const std::function<void(skrull_rank_chunk_plan*)>& change) {
        skrull_rank_chunk_plan given = arrays.Get();
        change(&given);
        return skrull_chunk_plan_create(&given, &plan);
      };
  REQUIRE(with([](auto*) {}) == SKRULL_OK);
  skrull_chunk_plan_destroy(plan);
  plan = nullptr;
  CheckRefused(with([](auto* p) { p->struct_bytes -= 8; }), "struct_bytes");
  CHECK(with([](auto* p) { p->reserved = 1; }) == SKRULL_UNSUPPORTED);
  CheckRefused(with([](auto* p) { p->digest = nullptr; }), "digest");
  CheckRefused(with([](auto* p) { p->ranks = 0; }), "ranks is 0");
  CheckRefused(with([](auto* p) { p->rank = 2; }), "rank is 2");
  CheckRefused(with([](auto* p) { p->chunk_count = -1; }), "chunk_count");
  CheckRefused(with([](auto* p) { p->operation_count = -1; }),
               "operation_count");
  CheckRefused(with([](auto* p) { p->block_count = 1 << 30; }), "block_count");
  CheckRefused(with([](auto* p) { p->chunks = nullptr; }), "chunks");
  CheckRefused(with([](auto* p) { p->segments = nullptr; }), "segments");
  CheckRefused(with([](auto* p) { p->segment_offsets = nullptr; }),
               "segment_offsets");
  CheckRefused(with([](auto* p) { p->operations = nullptr; }), "operations");
  CheckRefused(with([](auto* p) { p->blocks = nullptr; }), "blocks");
  CheckRefused(with([](auto* p) { p->retained_chunks = 0; }),
               "retained_chunks is 0");
  CheckRefused(with([](auto* p) { p->operation_count -= 1; }), "chunk 2");

  const auto edited = [&](const std::function<void(ChunkArrays*)>& edit) {
    const ChunkArrays before = arrays;
    edit(&arrays);
    const int32_t code = with([](auto*) {});
    arrays = before;
    return code;
  };
  CheckRefused(edited([](auto* a) { a->offsets[1] = 9; }),
               "segment_offsets[2]");
  CheckRefused(edited([](auto* a) { a->blocks[1] = 3; }), "block 0");
  CheckRefused(edited([](auto* a) { a->segments[1].first_rank = -1; }),
               "segment 1");
  CheckRefused(edited([](auto* a) { a->segments[1].low_end += 1; }), "chunk 1");
  CheckRefused(edited([](auto* a) { a->chunks[1].token_count = 5; }),
               "14 of 15 tokens");
  CheckRefused(edited([](auto* a) { a->chunks[2].token_weight = NAN; }),
               "chunks[2].token_weight");
  CHECK(edited([](auto* a) { a->chunks[2].reserved = 1; }) ==
        SKRULL_UNSUPPORTED);
  CHECK_THAT(skrull_exec_last_error(), Catch::Contains("chunks[2].reserved"));
  CheckRefused(edited([](auto* a) { a->chunks[0].group_size = 0; }), "chunk 0");
  CheckRefused(edited([](auto* a) { a->operations[1].chunk = 17; }),
               "operation 1");
  CheckRefused(
      edited([](auto* a) { a->operations[0].pass = SKRULL_CHUNK_FORWARD; }),
      "keeps the activations of 1 chunks already");
  // Each would be a pass if it were cut to a byte.
  for (const int32_t pass : {-1, 4, 256, 259}) {
    CheckRefused(edited([&](auto* a) { a->operations[0].pass = pass; }),
                 "operations[0].pass is " + std::to_string(pass));
  }
  CheckRefused(
      edited([](auto* a) { std::swap(a->operations[0], a->operations[1]); }),
      "operation 0 (forward of chunk 1)");
  for (const int64_t nonsense : {std::numeric_limits<int64_t>::min(),
                                 std::numeric_limits<int64_t>::max()}) {
    CheckRefused(edited([&](auto* a) { a->chunks[1].token_count = nonsense; }),
                 "chunks[1].token_count");
    for (int64_t skrull_segment::* field :
         {&skrull_segment::low_begin, &skrull_segment::low_end,
          &skrull_segment::high_begin, &skrull_segment::high_end}) {
      CheckRefused(edited([&](auto* a) { a->segments[1].*field = nonsense; }),
                   "segment 1");
    }
  }
  CHECK(plan == nullptr);
}

}  // namespace skrull::exec::testing
