// Attention calls that backends refuse, and what they say.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/tests/cuda/host_tensor.h"

namespace skrull::exec::testing {

TEST_CASE("cpu attention: refuses what is no attention", "[cpu_attention]") {
  CpuDevice device;
  const auto backend = *CreateCpuAttention(1);
  const Stream stream = *device.CreateStream(StreamPriority::kNormal);
  AttentionProblem p{.dtype = DType::kFloat32,
                     .q_heads = 4,
                     .kv_heads = 2,
                     .head_dim = 8,
                     .scale = 1};
  // One segment of five queries and five keys.
  const int32_t cu_q[] = {0, 5};
  int32_t cu_kv[] = {0, 5};
  const HostTensor wide(DType::kFloat32, 5, 4, 8);
  const HostTensor narrow(DType::kFloat32, 5, 2, 8);
  const HostTensor sums(DType::kFloat32, 5, 4, 1);
  const Segments segments{.bounds = {.count = 1,
                                     .max_q = 5,
                                     .max_kv = 5,
                                     .total_q = 5,
                                     .total_kv = 5,
                                     .mask = Mask::kCausalBottomRight},
                          .cu_q = cu_q,
                          .cu_kv = cu_kv,
                          .device_cu_q = nullptr,
                          .device_cu_kv = nullptr};
  AttentionForward forward{.problem = p,
                           .segments = segments,
                           .q = wide.view(),
                           .k = narrow.view(),
                           .v = narrow.view(),
                           .o = wide.view(),
                           .lse = sums.view()};
  const auto message = [&] {
    const Status status = backend->Forward(forward, {}, stream);
    CHECK(status.code() == StatusCode::kInvalidArgument);
    return status.message();
  };
  SECTION("heads") {
    forward.problem.kv_heads = 3;
    CHECK_THAT(message(), Catch::Contains("q_heads is 4"));
    p.kv_heads = 0;
    CHECK_FALSE(backend->Supports(p, Pass::kForward).ok());
    p.kv_heads = 2;
    p.head_dim = 0;
    CHECK_FALSE(backend->Supports(p, Pass::kForward).ok());
    p.head_dim = 8;
    p.scale = NAN;
    CHECK_FALSE(backend->Supports(p, Pass::kForward).ok());
  }
  SECTION("fewer keys than queries") {
    cu_kv[1] = 4;
    forward.segments.bounds.total_kv = 4;
    CHECK_THAT(message(),
               Catch::Contains("segment 0 has 5 queries and 4 keys"));
  }
  SECTION("no segments") {
    forward.segments.bounds.count = 0;
    CHECK_THAT(message(), Catch::Contains("without segments"));
  }
  SECTION("rows") {
    forward.o.rows = 4;
    CHECK_THAT(message(), Catch::Contains("o has 4 rows, not 5"));
  }
  SECTION("type") {
    forward.lse.dtype = DType::kFloat64;
    CHECK_THAT(message(), Catch::Contains("lse is float64, not float32"));
  }
  SECTION("overlap") {
    forward.v.row_stride = 8;
    CHECK_THAT(message(), Catch::Contains("v overlaps itself"));
    // The second head begins where no sum of 64 bits says.
    forward.v.row_stride = 4;
    forward.v.head_stride = std::numeric_limits<int64_t>::max();
    CHECK_THAT(message(), Catch::Contains("v overlaps itself"));
  }
  SECTION("workspace") {
    const Status status = backend->Backward({.problem = p,
                                             .segments = segments,
                                             .q = forward.q,
                                             .k = forward.k,
                                             .v = forward.v,
                                             .o = forward.o,
                                             .d_o = forward.q,
                                             .lse = forward.lse,
                                             .dq = wide.view(),
                                             .dk = narrow.view(),
                                             .dv = narrow.view()},
                                            {}, stream);
    CHECK_THAT(status.message(), Catch::Contains("80 are needed"));
  }
  CHECK(CreateCpuAttention(-1).status().code() == StatusCode::kInvalidArgument);
  device.DestroyStream(stream);
}

}  // namespace skrull::exec::testing
