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

// Both passes at once and straight to the kernels, without the checks of the
// backend.
void LaunchNow(const Call& call) {
  REQUIRE(flash::LaunchForward(ForwardOf(call), kNow).ToString() == "OK");
  const int64_t rows = call.segments.bounds.total_q;
  const auto count = static_cast<size_t>(rows * call.problem.q_heads);
  std::vector<float> floats(2 * count, NAN);
  const flash::RowStatistics statistics{floats.data(), floats.data() + count,
                                        rows};
  const AttentionBackward backward = BackwardOf(call);
  for (const Status& status :
       {flash::LaunchRowStatistics(backward, statistics, kNow),
        flash::LaunchKeyGradient(backward, statistics, kNow),
        flash::LaunchQueryGradient(backward, statistics, kNow)}) {
    REQUIRE(status.ToString() == "OK");
  }
}

void FillRows(HostTensor* tensor, int64_t first, int64_t end, double value) {
  for (int64_t r = first; r < end; ++r) {
    for (int32_t h = 0; h < tensor->view().heads; ++h) {
      for (int32_t c = 0; c < tensor->view().dim; ++c) {
        tensor->Set(r, h, c, value);
      }
    }
  }
}

// Bits of the rows [first, end) are the same?
bool SameRows(const HostTensor& a, const HostTensor& b, int64_t first,
              int64_t end) {
  for (int64_t r = first; r < end; ++r) {
    for (int32_t h = 0; h < a.view().heads; ++h) {
      for (int32_t c = 0; c < a.view().dim; ++c) {
        if (a.Get(r, h, c) != b.Get(r, h, c)) return false;  // also for NaN
      }
    }
  }
  return true;
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
  for (uint64_t seed = 0; seed < 24; ++seed) {
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
  for (const uint64_t seed : {1U, 1U, 2U, 3U}) {
    sim::SetOrderSeed(seed);
    auto call = MakeCall(p, Mask::kCausalBottomRight, lengths, 0, 7);
    Run(*call, Backend());
    if (first == nullptr)
      first = std::move(call);
    else
      CHECK(SameBits(*first, *call));
  }
}

// Tiles of one segment reach over rows of the next.
TEST_CASE("flash attention: other segments' rows have no influence",
          "[flash]") {
  for (const int32_t dim : {64, 128}) {
    for (const Mask mask : {Mask::kCausalBottomRight, Mask::kFull}) {
      const AttentionProblem p = Problem(DType::kBFloat16, 2, 1, dim);
      const std::vector<Lengths> lengths = {{33, 33}, {17, 70}, {40, 50}};
      const auto clean = MakeCall(p, mask, lengths, 0, 11);
      const auto spoiled = MakeCall(p, mask, lengths, 0, 11);
      for (HostTensor* t : {&spoiled->q, &spoiled->d_o}) {
        FillRows(t, 0, 33, NAN);
        FillRows(t, 50, 90, NAN);
      }
      for (HostTensor* t : {&spoiled->k, &spoiled->v}) {
        FillRows(t, 0, 33, NAN);
        FillRows(t, 103, 153, NAN);
      }
      Run(*clean, Backend());
      Run(*spoiled, Backend());
      CHECK(SameRows(clean->o, spoiled->o, 33, 50));
      CHECK(SameRows(clean->lse, spoiled->lse, 33, 50));
      CHECK(SameRows(clean->dq, spoiled->dq, 33, 50));
      CHECK(SameRows(clean->dk, spoiled->dk, 33, 103));
      CHECK(SameRows(clean->dv, spoiled->dv, 33, 103));
      // What is not a number is told, not hidden.
      CHECK(std::isnan(spoiled->o.Get(0, 0, 0)));
      CHECK(std::isnan(spoiled->lse.Get(0, 0, 0)));
      CHECK(std::isnan(spoiled->dq.Get(0, 0, 0)));
      CHECK(std::isnan(spoiled->dk.Get(0, 0, 0)));
    }
  }
}

// As ring attention does it: each part of the keys with the O and LSE of all.
TEST_CASE("flash attention: gradients of a part of the keys", "[flash]") {
  const AttentionProblem p = Problem(DType::kFloat16, 2, 1, 64);
  const auto whole = MakeCall(p, Mask::kFull, {{70, 150}}, 0, 3);
  Run(*whole, Backend());
  const SequenceData& data = whole->data[0];
  DenseResult sums;
  sums.dq = Dense(70, 2, 64);
  for (const auto& [first, count] : {std::pair(0, 67), std::pair(67, 83)}) {
    const auto part = MakeCall(p, Mask::kFull, {{70, count}}, 8, 4);
    Put(data.q, 0, &part->q);
    Put(data.d_o, 0, &part->d_o);
    for (int32_t r = 0; r < count; ++r) {
      for (int32_t c = 0; c < 64; ++c) {
        part->k.Set(r, 0, c, data.k.at(first + r, 0, c));
        part->v.Set(r, 0, c, data.v.at(first + r, 0, c));
      }
    }
    part->o = HostTensor(DType::kFloat16, 70, 2, 64);
    for (int32_t r = 0; r < 70; ++r) {
      for (int32_t h = 0; h < 2; ++h) {
        part->lse.Set(r, h, 0, whole->lse.Get(r, h, 0));
        for (int32_t c = 0; c < 64; ++c) {
          part->o.Set(r, h, c, whole->o.Get(r, h, c));
        }
      }
    }
    std::vector<char> memory(static_cast<size_t>(
        *Backend()->Prepare(p, part->segments.bounds, Pass::kBackward)));
    REQUIRE(Backend()
                ->Backward(BackwardOf(*part),
                           {memory.data(), static_cast<int64_t>(memory.size())},
                           kNow)
                .ToString() == "OK");
    DenseResult want;
    want.dk = want.dv = Dense(count, 1, 64);
    for (int32_t r = 0; r < count; ++r) {
      for (int32_t c = 0; c < 64; ++c) {
        want.dk.at(r, 0, c) = whole->want[0].dk.at(first + r, 0, c);
        want.dv.at(r, 0, c) = whole->want[0].dv.at(first + r, 0, c);
      }
    }
    const double bound = BoundsOf(p.dtype).gradient;
    CHECK(Compare(part->dk, {0}, {want}, &DenseResult::dk).norm < bound);
    CHECK(Compare(part->dv, {0}, {want}, &DenseResult::dv).norm < bound);
    for (int32_t r = 0; r < 70; ++r) {
      for (int32_t h = 0; h < 2; ++h) {
        for (int32_t c = 0; c < 64; ++c) {
          sums.dq.at(r, h, c) += part->dq.Get(r, h, c);
        }
      }
    }
  }
  double off2 = 0;
  double all2 = 0;
  for (size_t i = 0; i < sums.dq.values.size(); ++i) {
    const double want = whole->want[0].dq.values[i];
    off2 += (sums.dq.values[i] - want) * (sums.dq.values[i] - want);
    all2 += want * want;
  }
  CHECK(std::sqrt(off2 / all2) < BoundsOf(p.dtype).gradient);
}

// The checks of the backend do not let such segments in, the kernels do.
TEST_CASE("flash attention: queries without keys, keys without queries",
          "[flash]") {
  for (const int32_t dim : {64, 128}) {
    const AttentionProblem p = Problem(DType::kBFloat16, 2, 1, dim);
    // 90 queries of 150 see nothing: whole tiles of them, and parts. In the
    // end there are keys without queries.
    const auto call =
        MakeCall(p, Mask::kFull, {{150, 60}, {20, 20}, {0, 70}}, 0, 6);
    call->segments.bounds.mask = Mask::kCausalBottomRight;
    LaunchNow(*call);
    SequenceData s = call->data[0];
    const auto tail = [](const Dense& all) {
      Dense part(60, all.heads, all.dim);
      std::copy_n(all.values.end() - static_cast<ptrdiff_t>(part.values.size()),
                  part.values.size(), part.values.begin());
      return part;
    };
    const DenseResult want =
        DenseAttention(tail(s.q), s.k, s.v, tail(s.d_o), p.scale);
    const auto [o_bound, bound] = BoundsOf(p.dtype);
    CHECK(Compare(call->o, {90}, {want}, &DenseResult::o).norm < o_bound);
    CHECK(Compare(call->lse, {90}, {want}, &DenseResult::lse).most < 1e-3);
    CHECK(Compare(call->dq, {90}, {want}, &DenseResult::dq).norm < bound);
    CHECK(Compare(call->dk, {0}, {want}, &DenseResult::dk).norm < bound);
    CHECK(Compare(call->dv, {0}, {want}, &DenseResult::dv).norm < bound);
    bool zero = true;
    for (int64_t r = 80; r < 150; ++r) {
      for (int32_t c = 0; c < dim; ++c) {
        zero &= call->dk.Get(r, 0, c) == 0 && call->dv.Get(r, 0, c) == 0;
      }
    }
    for (int64_t r = 0; r < 90; ++r) {
      for (int32_t h = 0; h < 2; ++h) {
        zero &= call->lse.Get(r, h, 0) == -INFINITY;
        for (int32_t c = 0; c < dim; ++c) {
          zero &= call->o.Get(r, h, c) == 0 && call->dq.Get(r, h, c) == 0;
        }
      }
    }
    CHECK(zero);
  }
}

// More than are sorted: blocks find them by bisection.
TEST_CASE("flash attention: 300 short segments", "[flash]") {
  std::mt19937_64 random(8);
  std::vector<Lengths> lengths(300);
  for (auto& [q, kv] : lengths) {
    q = 1 + static_cast<int32_t>(random() % 3);
    kv = q + static_cast<int32_t>(random() % 2);
  }
  lengths[100] = {70, 140};
  const auto call = MakeCall(Problem(DType::kBFloat16, 1, 1, 64),
                             Mask::kCausalBottomRight, lengths, 0, 8);
  Run(*call, Backend());
  CheckAgainstDense(*call);
}

TEST_CASE("flash attention: large scores do not overflow", "[flash]") {
  AttentionProblem p = Problem(DType::kFloat16, 1, 1, 64);
  p.scale = 50;  // scores of about 400, far behind what an exponential holds
  const auto call = MakeCall(p, Mask::kCausalBottomRight, {{100, 100}}, 0, 2);
  Run(*call, Backend());
  // Softmax is all but a choice: errors of scores, 400 * 2^-23, hardly count.
  CHECK(Compare(call->o, call->cu_q, call->want, &DenseResult::o).norm < 1e-3);
  CHECK(Compare(call->lse, call->cu_q, call->want, &DenseResult::lse).most <
        1e-5);
  for (const HostTensor* t : {&call->dq, &call->dk, &call->dv}) {
    CHECK(std::isfinite(t->Get(99, 0, 0)));
  }
}

}  // namespace skrull::exec::testing
