// The cpu backend against dense attention, segment by segment.
#include "skrull/cuda/cpu/cpu_attention.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/tests/cuda/attention_call.h"

namespace skrull::exec::testing {
namespace {

void Run(const Call& call, int threads) {
  Run(call, CreateCpuAttention(threads)->get());
}

std::vector<Lengths> RandomLengths(std::mt19937_64* random, Mask mask) {
  std::vector<Lengths> lengths;
  for (uint64_t n = 1 + (*random)() % 5; n > 0; --n) {
    const auto q = 1 + static_cast<int32_t>((*random)() % 150);
    auto kv = 1 + static_cast<int32_t>((*random)() % 200);
    if (mask == Mask::kCausalBottomRight) kv += q - 1;
    lengths.push_back({q, kv});
  }
  return lengths;
}

// Rounding: each value is a sum of at most `terms` products, of which each and
// each partial sum carries an error of half a unit in the last place.
double FloatBound(double terms) { return 8 * terms * 0x1p-24; }

}  // namespace

TEST_CASE("cpu attention: float64 and float32 equal dense attention",
          "[cpu_attention]") {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    std::mt19937_64 random(seed);
    const int32_t groups[] = {1, 2, 7};
    AttentionProblem p;
    p.dtype = seed % 2 == 0 ? DType::kFloat64 : DType::kFloat32;
    p.kv_heads = 1 + static_cast<int32_t>(random() % 3);
    p.q_heads = p.kv_heads * groups[random() % 3];
    p.head_dim = 1 + static_cast<int32_t>(random() % 80);
    p.scale = 1 / std::sqrt(p.head_dim);
    const Mask mask = seed % 4 < 2 ? Mask::kCausalBottomRight : Mask::kFull;
    INFO("seed " << seed);
    const auto call = MakeCall(p, mask, RandomLengths(&random, mask),
                               static_cast<int32_t>(random() % 3), seed);
    Run(*call, 1 + static_cast<int>(random() % 3));
    const double group = p.q_heads / p.kv_heads;
    const double bound =
        p.dtype == DType::kFloat64
            ? 1e-12
            : FloatBound(call->segments.bounds.max_kv * group + p.head_dim);
    CHECK(Compare(call->o, call->cu_q, call->want, &DenseResult::o).most <
          bound);
    CHECK(Compare(call->lse, call->cu_q, call->want, &DenseResult::lse).most <
          bound);
    CHECK(Compare(call->dq, call->cu_q, call->want, &DenseResult::dq).most <
          bound);
    CHECK(Compare(call->dk, call->cu_kv, call->want, &DenseResult::dk).most <
          bound);
    CHECK(Compare(call->dv, call->cu_kv, call->want, &DenseResult::dv).most <
          bound);
    for (const HostTensor* t : {&call->o, &call->lse, &call->dq, &call->dk,
                                &call->dv, &call->q, &call->k}) {
      CHECK(t->GapsAreUntouched());
    }
  }
}

TEST_CASE("cpu attention: 16-bit storage, float32 sums", "[cpu_attention]") {
  for (const auto& [dtype, o_bound, grad_bound] :
       {std::tuple(DType::kBFloat16, 4e-3, 1e-2),
        std::tuple(DType::kFloat16, 1e-3, 3e-3)}) {
    const AttentionProblem p{.dtype = dtype,
                             .q_heads = 4,
                             .kv_heads = 2,
                             .head_dim = 64,
                             .scale = 0.125};
    const auto call = MakeCall(p, Mask::kCausalBottomRight,
                               {{300, 300}, {1, 1}, {65, 129}}, 0, 5);
    Run(*call, 2);
    CHECK(Compare(call->o, call->cu_q, call->want, &DenseResult::o).norm <
          o_bound);
    CHECK(Compare(call->lse, call->cu_q, call->want, &DenseResult::lse).most <
          1e-3);
    CHECK(Compare(call->dq, call->cu_q, call->want, &DenseResult::dq).norm <
          grad_bound);
    CHECK(Compare(call->dk, call->cu_kv, call->want, &DenseResult::dk).norm <
          grad_bound);
    CHECK(Compare(call->dv, call->cu_kv, call->want, &DenseResult::dv).norm <
          grad_bound);
  }
}

TEST_CASE("cpu attention: the same bits with any number of threads",
          "[cpu_attention]") {
  const AttentionProblem p{.dtype = DType::kFloat32,
                           .q_heads = 6,
                           .kv_heads = 2,
                           .head_dim = 20,
                           .scale = 0.2};
  const std::vector<Lengths> lengths = {{130, 190}, {64, 64}, {3, 200}};
  const auto one = MakeCall(p, Mask::kCausalBottomRight, lengths, 0, 9);
  Run(*one, 1);
  for (const int threads : {2, 7}) {
    const auto many = MakeCall(p, Mask::kCausalBottomRight, lengths, 0, 9);
    Run(*many, threads);
    CHECK(one->o.bytes() == many->o.bytes());
    CHECK(one->lse.bytes() == many->lse.bytes());
    CHECK(one->dq.bytes() == many->dq.bytes());
    CHECK(one->dk.bytes() == many->dk.bytes());
    CHECK(one->dv.bytes() == many->dv.bytes());
  }
}

TEST_CASE("cpu attention: large scores do not overflow", "[cpu_attention]") {
  const AttentionProblem p{.dtype = DType::kFloat32,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .head_dim = 4,
                           .scale = 300};
  const auto call = MakeCall(p, Mask::kCausalBottomRight, {{100, 100}}, 0, 2);
  Run(*call, 1);
  CHECK(Compare(call->o, call->cu_q, call->want, &DenseResult::o).most < 1e-2);
  CHECK(Compare(call->lse, call->cu_q, call->want, &DenseResult::lse).most <
        1e-5);
}

// Backward over part of the keys, with O and LSE of all of them, gives that
// part's share of the gradients.
TEST_CASE("cpu attention: gradients of a part of the keys", "[cpu_attention]") {
  const AttentionProblem p{.dtype = DType::kFloat64,
                           .q_heads = 2,
                           .kv_heads = 1,
                           .head_dim = 5,
                           .scale = 0.4};
  const auto whole = MakeCall(p, Mask::kFull, {{70, 150}}, 0, 3);
  Run(*whole, 1);
  const int32_t cut = 67;
  std::vector<double> dq(whole->want[0].dq.values.size());
  for (const auto& [first, count] :
       {std::pair(0, cut), std::pair(cut, 150 - cut)}) {
    const auto part = MakeCall(p, Mask::kFull, {{70, count}}, 0, 4);
    Put(whole->data[0].q, 0, &part->q);
    Put(whole->data[0].d_o, 0, &part->d_o);
    for (int64_t r = 0; r < count; ++r) {
      for (int32_t c = 0; c < p.head_dim; ++c) {
        part->k.Set(r, 0, c, whole->data[0].k.at(first + r, 0, c));
        part->v.Set(r, 0, c, whole->data[0].v.at(first + r, 0, c));
      }
    }
    CpuDevice device;
    const auto backend = *CreateCpuAttention(1);
    const Stream stream = *device.CreateStream(StreamPriority::kNormal);
    const Buffer memory = *device.Allocate(4096);
    REQUIRE(backend
                ->Backward({.problem = p,
                            .segments = part->segments,
                            .q = part->q.view(),
                            .k = part->k.view(),
                            .v = part->v.view(),
                            .o = whole->o.view(),
                            .d_o = part->d_o.view(),
                            .lse = whole->lse.view(),
                            .dq = part->dq.view(),
                            .dk = part->dk.view(),
                            .dv = part->dv.view()},
                           {memory.data(), memory.bytes()}, stream)
                .ok());
    REQUIRE(device.Synchronize(stream).ok());
    device.DestroyStream(stream);
    size_t i = 0;
    for (int64_t r = 0; r < 70; ++r) {
      for (int32_t h = 0; h < 2; ++h) {
        for (int32_t c = 0; c < 5; ++c) dq[i++] += part->dq.Get(r, h, c);
      }
    }
    for (int64_t r = 0; r < count; ++r) {
      for (int32_t c = 0; c < 5; ++c) {
        CHECK(part->dk.Get(r, 0, c) ==
              Approx(whole->want[0].dk.at(first + r, 0, c)).margin(1e-12));
      }
    }
  }
  for (size_t i = 0; i < dq.size(); ++i) {
    CHECK(dq[i] == Approx(whole->want[0].dq.values[i]).margin(1e-12));
  }
}

}  // namespace skrull::exec::testing
