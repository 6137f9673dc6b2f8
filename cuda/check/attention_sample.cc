#include "skrull/cuda/check/attention_sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/list_upload.h"
#include "skrull/cuda/profile/own_stream.h"

namespace skrull::check {
namespace {

using exec::DType;
using exec::Result;
using exec::Status;
using exec::Tensor;

// Sets *to, or returns why not.
template <class T>
Status Take(Result<T> from, T* to) {
  SKRULL_EXEC_RETURN_IF_ERROR(from.status());
  *to = *std::move(from);
  return {};
}

struct Tensors {
  Tensor q, k, v, o, d_o, lse, dq, dk, dv;
};

Status MakeTensors(const exec::AttentionProblem& p,
                   const exec::AttentionBackend& backend, QueryTail tail,
                   const AttentionInputs& in, DeviceRows* rows, Tensors* t) {
  const auto up = [&](const Rows& values, int32_t heads, const Behind& behind,
                      Tensor* to) {
    return Take(rows->Upload(values, p.dtype, heads, p.head_dim, behind), to);
  };
  const Behind keys = {.finite = backend.kv_tail_rows(), .nan = kGuardRows};
  const Behind queries = tail == QueryTail::kNan
                             ? Behind{.finite = 0, .nan = kGuardRows}
                             : Behind{.finite = kGuardRows, .nan = 0};
  const auto out = [&](int64_t count, int32_t heads, Tensor* to) {
    return Take(rows->Poisoned(p.dtype, count, heads, p.head_dim), to);
  };
  SKRULL_EXEC_RETURN_IF_ERROR(up(in.q, p.q_heads, queries, &t->q));
  SKRULL_EXEC_RETURN_IF_ERROR(up(in.d_o, p.q_heads, queries, &t->d_o));
  SKRULL_EXEC_RETURN_IF_ERROR(up(in.k, p.kv_heads, keys, &t->k));
  SKRULL_EXEC_RETURN_IF_ERROR(up(in.v, p.kv_heads, keys, &t->v));
  SKRULL_EXEC_RETURN_IF_ERROR(out(in.q.count(), p.q_heads, &t->o));
  SKRULL_EXEC_RETURN_IF_ERROR(out(in.q.count(), p.q_heads, &t->dq));
  SKRULL_EXEC_RETURN_IF_ERROR(out(in.k.count(), p.kv_heads, &t->dk));
  SKRULL_EXEC_RETURN_IF_ERROR(out(in.k.count(), p.kv_heads, &t->dv));
  SKRULL_EXEC_RETURN_IF_ERROR(Take(
      rows->Poisoned(exec::AccumulatorOf(p.dtype), in.q.count(), p.q_heads, 1),
      &t->lse));
  if (backend.lse_order() == exec::LseOrder::kHeadMajor) {
    t->lse.row_stride = 1;
    t->lse.head_stride = in.q.count();
  }
  return {};
}

Status RunPasses(exec::Device* device, exec::AttentionBackend* backend,
                 const exec::AttentionProblem& problem,
                 const exec::Segments& segments, const Tensors& t,
                 exec::Stream stream) {
  return device->AsCurrent([&]() -> Status {
    int64_t bytes = 0;
    for (const exec::Pass pass :
         {exec::Pass::kForward, exec::Pass::kBackward}) {
      int64_t needed = 0;
      SKRULL_EXEC_RETURN_IF_ERROR(
          Take(backend->Prepare(problem, segments.bounds, pass), &needed));
      bytes = std::max(bytes, needed);
    }
    exec::Buffer memory;
    SKRULL_EXEC_RETURN_IF_ERROR(Take(device->Allocate(bytes), &memory));
    const exec::Workspace workspace = {memory.data(), memory.bytes()};
    SKRULL_EXEC_RETURN_IF_ERROR(backend->Forward(
        {problem, segments, t.q, t.k, t.v, t.o, t.lse}, workspace, stream));
    const Status status = backend->Backward(
        {problem, segments, t.q, t.k, t.v, t.o, t.d_o, t.lse, t.dq, t.dk, t.dv},
        workspace, stream);
    // Also after a failure: the work before it uses the memory.
    const Status synchronized = device->Synchronize(stream);
    SKRULL_EXEC_RETURN_IF_ERROR(status);
    return synchronized;
  });
}

}  // namespace

AttentionInputs RandomInputs(uint64_t seed,
                             const exec::AttentionProblem& problem,
                             int64_t query_rows, int64_t key_rows) {
  const int64_t q = int64_t{problem.q_heads} * problem.head_dim;
  const int64_t kv = int64_t{problem.kv_heads} * problem.head_dim;
  return {.q = RandomRows(4 * seed, problem.dtype, query_rows, q),
          .k = RandomRows(4 * seed + 1, problem.dtype, key_rows, kv),
          .v = RandomRows(4 * seed + 2, problem.dtype, key_rows, kv),
          .d_o = RandomRows(4 * seed + 3, problem.dtype, query_rows, q)};
}

Result<AttentionOutputs> RunAttention(exec::Device* device,
                                      exec::AttentionBackend* backend,
                                      const exec::AttentionProblem& problem,
                                      exec::SegmentList list,
                                      const AttentionInputs& inputs,
                                      QueryTail tail) {
  for (const exec::Pass pass : {exec::Pass::kForward, exec::Pass::kBackward}) {
    SKRULL_EXEC_RETURN_IF_ERROR(backend->Supports(problem, pass));
  }
  profile::OwnStream stream(device);
  SKRULL_EXEC_RETURN_IF_ERROR(stream.Create());
  exec::Segments segments;
  exec::Buffer segment_memory;
  exec::internal::ListUpload upload;
  upload.AddSegments(list, &segments);
  SKRULL_EXEC_RETURN_IF_ERROR(upload.Send(device, &segment_memory));
  DeviceRows rows(device);
  Tensors t;
  SKRULL_EXEC_RETURN_IF_ERROR(
      MakeTensors(problem, *backend, tail, inputs, &rows, &t));
  SKRULL_EXEC_RETURN_IF_ERROR(
      RunPasses(device, backend, problem, segments, t, stream.get()));
  AttentionOutputs outputs;
  for (const auto& [tensor, to] :
       {std::pair(&t.o, &outputs.o), std::pair(&t.lse, &outputs.lse),
        std::pair(&t.dq, &outputs.dq), std::pair(&t.dk, &outputs.dk),
        std::pair(&t.dv, &outputs.dv)}) {
    SKRULL_EXEC_RETURN_IF_ERROR(Take(rows.Download(*tensor), to));
  }
  return outputs;
}

Result<AttentionOutputs> RunReference(const exec::AttentionProblem& problem,
                                      const exec::SegmentList& list,
                                      const AttentionInputs& inputs) {
  exec::CpuDevice device;
  std::unique_ptr<exec::AttentionBackend> backend;
  SKRULL_EXEC_RETURN_IF_ERROR(Take(exec::CreateCpuAttention(0), &backend));
  exec::AttentionProblem exact = problem;
  exact.dtype = DType::kFloat64;
  return RunAttention(&device, backend.get(), exact, list, inputs);
}

AttentionError Compare(const AttentionOutputs& outputs,
                       const AttentionOutputs& reference) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  AttentionError error;
  error.o = RelativeError(outputs.o, reference.o);
  error.gradients = std::max({RelativeError(outputs.dq, reference.dq),
                              RelativeError(outputs.dk, reference.dk),
                              RelativeError(outputs.dv, reference.dv)});
  for (size_t i = 0; i < outputs.lse.values.size(); ++i) {
    const double off =
        std::abs(outputs.lse.values[i] - reference.lse.values[i]);
    // A NaN is no agreement either.
    error.lse = std::max(error.lse, std::isnan(off) ? kInfinity : off);
  }
  return error;
}

bool SameBits(const AttentionOutputs& a, const AttentionOutputs& b) {
  const auto same = [](const Rows& x, const Rows& y) {
    return x.values.size() == y.values.size() &&
           std::memcmp(x.values.data(), y.values.data(),
                       x.values.size() * sizeof(double)) == 0;
  };
  return same(a.o, b.o) && same(a.lse, b.lse) && same(a.dq, b.dq) &&
         same(a.dk, b.dk) && same(a.dv, b.dv);
}

AttentionError LimitOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {.o = 1e-3, .gradients = 3e-3, .lse = 1e-3};
    case DType::kBFloat16:
      return {.o = 4e-3, .gradients = 1e-2, .lse = 1e-3};
    case DType::kFloat32:
      return {.o = 1e-5, .gradients = 1e-5, .lse = 1e-5};
    case DType::kFloat64:
      break;
  }
  return {.o = 1e-12, .gradients = 1e-12, .lse = 1e-12};
}

}  // namespace skrull::check
