// The attention kernels, run on the CPU by cuda/sim, against dense attention in
// float64 of the same rounded inputs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "skrull/cuda/attention/cuda/cuda_attention.h"
#include "skrull/cuda/attention/cuda/launch.h"
#include "skrull/cuda/sim/launch.h"
#include "skrull/tests/cuda/attention_call.h"

namespace skrull::exec::testing {
namespace {

constexpr Stream kNow{};

CudaAttention* Backend() {
  static CudaAttention backend(MemoryKind::kHost);
  return &backend;
}

AttentionProblem Problem(DType dtype, int32_t q_heads, int32_t kv_heads,
                         int32_t head_dim) {
  return {.dtype = dtype,
          .q_heads = q_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .scale = 1 / std::sqrt(head_dim)};
}

// Rounding to a type of unit roundoff u (bfloat16 2^-9, float16 2^-12) makes a
// random relative error of about 0.4 u a value; sums in float32 add next to
// nothing. O is rounded once after a mean of rounded P: below 2 u = 4e-3 in the
// norm with all slack. The gradients are sums of dS, in which P (dP - delta)
// cancels, times values, and delta comes from the rounded O: 5 u = 1e-2. In
// float16 u is 8 times smaller, and values below its normal range take part
// of that back: 1e-3 and 3e-3.
struct Bounds {
  double o, gradient;
};
Bounds BoundsOf(DType dtype) {
  return dtype == DType::kBFloat16 ? Bounds{4e-3, 1e-2} : Bounds{1e-3, 3e-3};
}

void CheckAgainstDense(const Call& call) {
  const auto [o_bound, bound] = BoundsOf(call.problem.dtype);
  CHECK(Compare(call.o, call.cu_q, call.want, &DenseResult::o).norm < o_bound);
  CHECK(Compare(call.lse, call.cu_q, call.want, &DenseResult::lse).most < 1e-3);
  CHECK(Compare(call.dq, call.cu_q, call.want, &DenseResult::dq).norm < bound);
  CHECK(Compare(call.dk, call.cu_kv, call.want, &DenseResult::dk).norm < bound);
  CHECK(Compare(call.dv, call.cu_kv, call.want, &DenseResult::dv).norm < bound);
  for (const HostTensor* t : {&call.o, &call.lse, &call.dq, &call.dk, &call.dv,
                              &call.q, &call.k, &call.v, &call.d_o}) {
    CHECK(t->GapsAreUntouched());
  }
}

bool SameBits(const Call& a, const Call& b) {
  return a.o.bytes() == b.o.bytes() && a.lse.bytes() == b.lse.bytes() &&
         a.dq.bytes() == b.dq.bytes() && a.dk.bytes() == b.dk.bytes() &&
         a.dv.bytes() == b.dv.bytes();
}

}  // namespace

TEST_CASE("flash attention: both passes equal dense attention", "[flash]") {
  // Around the sizes of fragments and tiles.
  const int32_t lengths[] = {1, 15, 16, 17, 63, 64, 65, 127, 129, 200};
  const int32_t groups[] = {1, 2, 7};
  for (uint64_t seed = 0; seed < 16; ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](const auto& list) {
      return list[random() % std::size(list)];
    };
    const DType dtype = seed % 2 == 0 ? DType::kBFloat16 : DType::kFloat16;
    const int32_t dim = seed % 4 < 2 ? 64 : 128;
    const int32_t kv_heads = 1 + static_cast<int32_t>(random() % 2);
    const AttentionProblem p =
        Problem(dtype, kv_heads * pick(groups), kv_heads, dim);
    const Mask mask = seed % 8 < 5 ? Mask::kCausalBottomRight : Mask::kFull;
    std::vector<Lengths> segments;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      const int32_t q = pick(lengths);
      const int32_t kv = pick(lengths);
      const bool longer = mask == Mask::kCausalBottomRight && random() % 2 == 0;
      segments.push_back({q, longer ? q + kv : std::max(q, kv)});
      if (mask == Mask::kFull) segments.back().kv = kv;
    }
    const auto gap = static_cast<int32_t>(8 * (random() % 3));
    INFO("seed " << seed);
    const auto call = MakeCall(p, mask, segments, gap, seed);
    sim::SetOrderSeed(seed);
    Run(*call, Backend());
    CheckAgainstDense(*call);
  }
}

TEST_CASE("flash attention: equal calls give equal bits in every order",
          "[flash]") {
  const AttentionProblem p = Problem(DType::kBFloat16, 4, 2, 64);
  const std::vector<Lengths> lengths = {{70, 150}, {16, 16}, {1, 90}};
  std::unique_ptr<Call> first;
  for (const uint64_t seed : {1, 1, 2, 3}) {
    sim::SetOrderSeed(seed);
    auto call = MakeCall(p, Mask::kCausalBottomRight, lengths, 0, 7);
    Run(*call, Backend());
    if (first == nullptr) first = std::move(call);
    else CHECK(SameBits(*first, *call));
  }
}

}  // namespace skrull::exec::testing
