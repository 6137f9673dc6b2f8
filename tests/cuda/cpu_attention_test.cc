// The cpu backend against dense attention, segment by segment.
#include "skrull/cuda/cpu/cpu_attention.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/tests/cuda/dense_attention.h"
#include "skrull/tests/cuda/host_tensor.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

struct Lengths {
  int32_t q, kv;
};

// One call over random segments, and what each of them must give.
struct Call {
  AttentionProblem problem;
  std::vector<int32_t> cu_q = {0}, cu_kv = {0};
  Segments segments;
  HostTensor q, k, v, d_o, o, lse, dq, dk, dv;
  std::vector<SequenceData> data;
  std::vector<DenseResult> want;
};

Dense Random(std::mt19937_64* random, DType dtype, int64_t rows, int32_t heads,
             int32_t dim) {
  std::normal_distribution<double> normal;
  Dense dense(rows, heads, dim);
  for (double& value : dense.values) {
    WithHostType(dtype, [&]<class T>(T) {
      value = ConvertHost<double>(ConvertHost<T>(normal(*random)));
    });
  }
  return dense;
}

void Put(const Dense& from, int64_t row, HostTensor* to) {
  for (int64_t r = 0; r < from.rows; ++r) {
    for (int32_t h = 0; h < from.heads; ++h) {
      for (int32_t c = 0; c < from.dim; ++c) {
        to->Set(row + r, h, c, from.at(r, h, c));
      }
    }
  }
}

std::unique_ptr<Call> MakeCall(const AttentionProblem& p, Mask mask,
                               const std::vector<Lengths>& lengths, int32_t gap,
                               uint64_t seed) {
  std::mt19937_64 random(seed);
  auto call = std::make_unique<Call>();
  call->problem = p;
  SegmentBounds& bounds = call->segments.bounds;
  bounds.mask = mask;
  for (const auto& [q, kv] : lengths) {
    call->cu_q.push_back(call->cu_q.back() + q);
    call->cu_kv.push_back(call->cu_kv.back() + kv);
    bounds.max_q = std::max(bounds.max_q, q);
    bounds.max_kv = std::max(bounds.max_kv, kv);
    ++bounds.count;
  }
  bounds.total_q = call->cu_q.back();
  bounds.total_kv = call->cu_kv.back();
  call->segments.cu_q = call->cu_q.data();
  call->segments.cu_kv = call->cu_kv.data();
  const auto queries = [&] {
    return HostTensor(p.dtype, bounds.total_q, p.q_heads, p.head_dim, gap);
  };
  const auto keys = [&] {
    return HostTensor(p.dtype, bounds.total_kv, p.kv_heads, p.head_dim, gap);
  };
  call->q = queries();
  call->o = queries();
  call->d_o = queries();
  call->dq = queries();
  call->k = keys();
  call->v = keys();
  call->dk = keys();
  call->dv = keys();
  call->lse =
      HostTensor(AccumulatorOf(p.dtype), bounds.total_q, p.q_heads, 1, gap);
  for (size_t i = 0; i < lengths.size(); ++i) {
    SequenceData s;
    const auto [q, kv] = lengths[i];
    s.q = Random(&random, p.dtype, q, p.q_heads, p.head_dim);
    s.k = Random(&random, p.dtype, kv, p.kv_heads, p.head_dim);
    s.v = Random(&random, p.dtype, kv, p.kv_heads, p.head_dim);
    s.d_o = Random(&random, p.dtype, q, p.q_heads, p.head_dim);
    Put(s.q, call->cu_q[i], &call->q);
    Put(s.d_o, call->cu_q[i], &call->d_o);
    Put(s.k, call->cu_kv[i], &call->k);
    Put(s.v, call->cu_kv[i], &call->v);
    call->want.push_back(
        DenseAttention(s.q, s.k, s.v, s.d_o, p.scale, mask == Mask::kFull));
    call->data.push_back(std::move(s));
  }
  return call;
}

void Run(const Call& call, int threads) {
  CpuDevice device;
  const auto backend = *CreateCpuAttention(threads);
  const Stream stream = *device.CreateStream(StreamPriority::kNormal);
  const int64_t bytes =
      *backend->Prepare(call.problem, call.segments.bounds, Pass::kBackward);
  const Buffer memory = *device.Allocate(bytes);
  const Workspace workspace{memory.data(), bytes};
  REQUIRE(backend
              ->Forward({.problem = call.problem,
                         .segments = call.segments,
                         .q = call.q.view(),
                         .k = call.k.view(),
                         .v = call.v.view(),
                         .o = call.o.view(),
                         .lse = call.lse.view()},
                        {}, stream)
              .ok());
  REQUIRE(backend
              ->Backward({.problem = call.problem,
                          .segments = call.segments,
                          .q = call.q.view(),
                          .k = call.k.view(),
                          .v = call.v.view(),
                          .o = call.o.view(),
                          .d_o = call.d_o.view(),
                          .lse = call.lse.view(),
                          .dq = call.dq.view(),
                          .dk = call.dk.view(),
                          .dv = call.dv.view()},
                         workspace, stream)
              .ok());
  REQUIRE(device.Synchronize(stream).ok());
  device.DestroyStream(stream);
}

// Largest difference to the reference relative to its largest value or 1, and
// the same in the Euclidean norm.
struct Miss {
  double most = 0;
  double norm = 0;
};
Miss Compare(const HostTensor& got, const std::vector<int32_t>& cu,
             const std::vector<DenseResult>& want,
             Dense DenseResult::* member) {
  Miss miss;
  double off2 = 0;
  double all2 = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const Dense& reference = want[i].*member;
    double scale = 1;
    for (const double value : reference.values) {
      scale = std::max(scale, std::abs(value));
    }
    for (int64_t r = 0; r < reference.rows; ++r) {
      for (int32_t h = 0; h < reference.heads; ++h) {
        for (int32_t c = 0; c < reference.dim; ++c) {
          const double value = got.Get(cu[i] + r, h, c);
          REQUIRE(std::isfinite(value));
          const double off = value - reference.at(r, h, c);
          miss.most = std::max(miss.most, std::abs(off) / scale);
          off2 += off * off;
          all2 += reference.at(r, h, c) * reference.at(r, h, c);
        }
      }
    }
  }
  miss.norm = std::sqrt(off2 / std::max(all2, 1e-300));
  return miss;
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
