// What the cuda backend refuses, and how it says so.
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "skrull/cuda/attention/cuda/cuda_attention.h"
#include "skrull/cuda/attention/cuda/dispatch.cuh"
#include "skrull/tests/cuda/attention_call.h"

namespace skrull::exec::testing {
namespace {

constexpr AttentionProblem kGood = {.dtype = DType::kBFloat16,
                                    .q_heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = 64,
                                    .scale = 0.125};

void CheckRefusal(const Status& status, StatusCode code,
                  const std::string& part) {
  INFO(status.ToString());
  CHECK(status.code() == code);
  CHECK(status.message().find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("flash refusals: problems without a kernel", "[flash][refusal]") {
  CudaAttention backend(MemoryKind::kHost);
  const auto supports = [&](const auto& change) {
    AttentionProblem problem = kGood;
    change(&problem);
    CHECK(backend.Prepare(problem, {}, Pass::kBackward).status() ==
          backend.Supports(problem, Pass::kForward));
    return backend.Supports(problem, Pass::kForward);
  };
  CHECK(supports([](AttentionProblem*) {}).ToString() == "OK");
  CHECK(supports([](auto* p) { p->head_dim = 128; }).ok());
  CHECK(supports([](auto* p) { p->dtype = DType::kFloat16; }).ok());
  CheckRefusal(supports([](auto* p) { p->dtype = DType::kFloat32; }),
               StatusCode::kUnsupported, "dtype is float32");
  CheckRefusal(supports([](auto* p) { p->head_dim = 80; }),
               StatusCode::kUnsupported, "head_dim is 80");
  for (const double scale : {0.0, -0.5, 1e-60, 1e60}) {
    CheckRefusal(supports([&](auto* p) { p->scale = scale; }),
                 StatusCode::kUnsupported, "scale is");
  }
  CheckRefusal(supports([](auto* p) { p->q_heads = 3; }),
               StatusCode::kInvalidArgument, "q_heads is 3");
}

TEST_CASE("flash refusals: rows that are not aligned", "[flash][refusal]") {
  CudaAttention backend(MemoryKind::kHost);
  const auto call =
      MakeCall(kGood, Mask::kCausalBottomRight, {{3, 5}, {2, 2}}, 8, 1);
  const int64_t bytes =
      *backend.Prepare(kGood, call->segments.bounds, Pass::kBackward);
  CHECK(bytes == 5 * 4 * 8);
  std::vector<char> memory(static_cast<size_t>(bytes));
  const Workspace workspace{memory.data(), bytes};
  const auto forward = [&](const auto& change) {
    AttentionForward f = ForwardOf(*call);
    change(&f);
    return backend.Forward(f, {}, {});
  };
  const auto backward = [&](const auto& change) {
    AttentionBackward b = BackwardOf(*call);
    change(&b);
    return backend.Backward(b, workspace, {});
  };
  REQUIRE(forward([](auto*) {}).ToString() == "OK");
  REQUIRE(backward([](auto*) {}).ToString() == "OK");
  const auto shift = [](Tensor* t) {
    t->data = static_cast<uint16_t*>(t->data) + 1;
  };
  const auto widen = [](Tensor* t) { t->row_stride += 4; };
  const auto spread = [](Tensor* t) { t->head_stride += 2; };
  CheckRefusal(forward([&](auto* f) { shift(&f->q); }),
               StatusCode::kInvalidArgument, "q is not aligned");
  CheckRefusal(forward([&](auto* f) { shift(&f->o); }),
               StatusCode::kInvalidArgument, "o is not aligned");
  // Floats: 2 bytes away from where one may be.
  CheckRefusal(forward([&](auto* f) { shift(&f->lse); }),
               StatusCode::kInvalidArgument, "lse is not aligned to 4 bytes");
  CheckRefusal(backward([&](auto* b) { shift(&b->lse); }),
               StatusCode::kInvalidArgument, "lse is not aligned to 4 bytes");
  CheckRefusal(forward([&](auto* f) { widen(&f->k); }),
               StatusCode::kInvalidArgument, "k has a row_stride of 156");
  CheckRefusal(forward([&](auto* f) { spread(&f->v); }),
               StatusCode::kInvalidArgument, "v has a head_stride of 74");
  CheckRefusal(backward([&](auto* b) { shift(&b->d_o); }),
               StatusCode::kInvalidArgument, "d_o is not aligned");
  CheckRefusal(backward([&](auto* b) { widen(&b->dq); }),
               StatusCode::kInvalidArgument, "dq has a row_stride");
  CheckRefusal(backward([&](auto* b) { widen(&b->dk); }),
               StatusCode::kInvalidArgument, "dk has a row_stride");
  CheckRefusal(backward([&](auto* b) { shift(&b->dv); }),
               StatusCode::kInvalidArgument, "dv is not aligned");
}

TEST_CASE("flash refusals: segments, workspace and grid", "[flash][refusal]") {
  CudaAttention backend(MemoryKind::kHost);
  const auto call = MakeCall(kGood, Mask::kCausalBottomRight, {{3, 5}}, 0, 1);
  AttentionForward no_array = ForwardOf(*call);
  no_array.segments.device_cu_kv = nullptr;
  CheckRefusal(backend.Forward(no_array, {}, {}), StatusCode::kInvalidArgument,
               "cu_seqlens on the device");
  AttentionForward few_keys = ForwardOf(*call);
  std::vector<int32_t> cu_kv = {0, 2};
  few_keys.segments.cu_kv = cu_kv.data();
  CheckRefusal(backend.Forward(few_keys, {}, {}), StatusCode::kInvalidArgument,
               "segment 0");
  std::vector<char> memory(8);
  CheckRefusal(backend.Backward(BackwardOf(*call), {memory.data(), 8}, {}),
               StatusCode::kInvalidArgument,
               "workspace of 8 bytes, where 96 are needed");
  dim3 grid;
  CHECK(
      flash::MakeGrid(std::numeric_limits<int32_t>::max() / 4, 4, &grid).ok());
  CHECK(grid.x == 2147483644U);
  CheckRefusal(
      flash::MakeGrid(std::numeric_limits<int32_t>::max() / 4 + 1, 4, &grid),
      StatusCode::kUnsupported, "536870912 tiles of 4 heads");
  // Too many rows for int32 tile ends, refused before anything is read.
  AttentionForward huge = ForwardOf(*call);
  const int32_t rows = std::numeric_limits<int32_t>::max() - 100;
  std::vector<int32_t> cu = {0, rows};
  huge.segments.cu_q = huge.segments.cu_kv = cu.data();
  huge.segments.bounds.max_q = huge.segments.bounds.max_kv = rows;
  huge.segments.bounds.total_q = huge.segments.bounds.total_kv = rows;
  for (Tensor* t : {&huge.q, &huge.k, &huge.v, &huge.o, &huge.lse}) {
    t->rows = rows;
  }
  CheckRefusal(backend.Forward(huge, {}, {}), StatusCode::kUnsupported,
               "2147483547 rows of queries");
  // A step is refused when it is prepared, not in the middle.
  SegmentBounds many_keys = call->segments.bounds;
  many_keys.total_kv = rows;
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    CheckRefusal(backend.Prepare(kGood, many_keys, pass).status(),
                 StatusCode::kUnsupported, "2147483547 rows of keys");
  }
  SegmentBounds many_queries = call->segments.bounds;
  many_queries.total_q = int64_t{1} << 30;
  AttentionProblem problem = kGood;
  problem.q_heads = problem.kv_heads = 15;
  CHECK(*backend.Prepare(problem, many_queries, Pass::kBackward) ==
        (int64_t{15} << 33));
  problem.q_heads = problem.kv_heads = 16;
  CheckRefusal(backend.Prepare(problem, many_queries, Pass::kBackward).status(),
               StatusCode::kUnsupported, "1073741824 rows of 16 query heads");
}

}  // namespace skrull::exec::testing
