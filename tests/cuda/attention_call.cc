#include "skrull/tests/cuda/attention_call.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <random>
#include <utility>

#include "skrull/cuda/cpu/cpu_device.h"

namespace skrull::exec::testing {
namespace {

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

}  // namespace

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
  call->segments.device_cu_q = call->cu_q.data();
  call->segments.device_cu_kv = call->cu_kv.data();
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

AttentionForward ForwardOf(const Call& call) {
  return {.problem = call.problem,
          .segments = call.segments,
          .q = call.q.view(),
          .k = call.k.view(),
          .v = call.v.view(),
          .o = call.o.view(),
          .lse = call.lse.view()};
}

AttentionBackward BackwardOf(const Call& call) {
  return {.problem = call.problem,
          .segments = call.segments,
          .q = call.q.view(),
          .k = call.k.view(),
          .v = call.v.view(),
          .o = call.o.view(),
          .d_o = call.d_o.view(),
          .lse = call.lse.view(),
          .dq = call.dq.view(),
          .dk = call.dk.view(),
          .dv = call.dv.view()};
}

void Run(const Call& call, AttentionBackend* backend) {
  CpuDevice device({.poison_buffers = true});
  const Stream stream = *device.CreateStream(StreamPriority::kNormal);
  const int64_t bytes =
      *backend->Prepare(call.problem, call.segments.bounds, Pass::kBackward);
  const Buffer memory = *device.Allocate(bytes);
  const Workspace workspace{memory.data(), bytes};
  CHECK(backend->Forward(ForwardOf(call), {}, stream).ToString() == "OK");
  CHECK(backend->Backward(BackwardOf(call), workspace, stream).ToString() ==
        "OK");
  const Status status = device.Synchronize(stream);
  device.DestroyStream(stream);
  REQUIRE(status.ToString() == "OK");
}

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

}  // namespace skrull::exec::testing
