#include "skrull/tests/cuda/cudnn/attention_rig.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

namespace skrull::exec::cudnn::testing {

using exec::testing::Compare;
using exec::testing::DenseResult;
using exec::testing::HostTensor;

Status RecordingBackend::Supports(const AttentionProblem&, Pass) const {
  if (supports) return {};
  return {StatusCode::kUnsupported, "other cannot"};
}

Result<int64_t> RecordingBackend::Prepare(const AttentionProblem&,
                                          const SegmentBounds&, Pass) {
  return bytes;
}

Status RecordingBackend::Forward(const AttentionForward&, Workspace, Stream) {
  return {StatusCode::kAborted, "forward by other"};
}

Status RecordingBackend::Backward(const AttentionBackward&, Workspace, Stream) {
  return {StatusCode::kAborted, "backward by other"};
}

Rig::Rig(const CudnnOptions& options, const RecordingBackend& answers) {
  auto owned = std::make_unique<RecordingBackend>(answers);
  other = owned.get();
  backend = CreateCudnnAttention(
      options, &fake, std::unique_ptr<AttentionBackend>(std::move(owned)),
      &events);
}

skrull_cudnn_counters Rig::counters() const {
  skrull_cudnn_counters counters{};
  events.AddTo(&counters);
  return counters;
}

WorkspaceMemory::WorkspaceMemory(int64_t bytes)
    : bytes_(bytes), memory_(static_cast<size_t>(bytes) + 512, '\xFF') {
  const auto at = reinterpret_cast<uintptr_t>(memory_.data());
  begin_ = static_cast<size_t>((256 - at % 256) % 256);
}

bool WorkspaceMemory::RestIsUntouched() const {
  return std::all_of(
      memory_.begin() + static_cast<std::ptrdiff_t>(begin_) + bytes_,
      memory_.end(), [](char c) { return c == '\xFF'; });
}

std::unique_ptr<Call> MakeCudnnCall(const AttentionProblem& problem, Mask mask,
                                    const std::vector<Lengths>& lengths,
                                    int32_t gap, uint64_t seed) {
  auto call = exec::testing::MakeCall(problem, mask, lengths, gap, seed);
  call->segments.device_cu_q = call->cu_q.data();
  call->segments.device_cu_kv = call->cu_kv.data();
  call->lse = HostTensor(DType::kFloat32, call->segments.bounds.total_q,
                         problem.q_heads, 1);
  return call;
}

AttentionProblem Heads(int32_t q_heads, int32_t kv_heads) {
  return {.dtype = DType::kBFloat16,
          .q_heads = q_heads,
          .kv_heads = kv_heads,
          .head_dim = 16,
          .scale = 0.25,
          .deterministic = false};
}

int64_t RunAndCompare(Rig* rig, const Call& call) {
  int64_t bytes = 0;
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    const Result<int64_t> needed =
        rig->backend->Prepare(call.problem, call.segments.bounds, pass);
    REQUIRE(needed.status().ToString() == "OK");
    bytes = *needed;
    WorkspaceMemory workspace(bytes);
    const Status status =
        pass == Pass::kForward
            ? rig->backend->Forward(ForwardOf(call), workspace.view(), {})
            : rig->backend->Backward(BackwardOf(call), workspace.view(), {});
    REQUIRE(status.ToString() == "OK");
    CHECK(workspace.RestIsUntouched());
  }
  CHECK(rig->fake.faults() == std::vector<std::string>{});
  // O and, in gradients, the O that they were given are rounded to 8 bits.
  constexpr double kRounding = 0x1p-7;
  CHECK(Compare(call.o, call.cu_q, call.want, &DenseResult::o).norm <
        kRounding);
  CHECK(Compare(call.dq, call.cu_q, call.want, &DenseResult::dq).norm <
        kRounding);
  CHECK(Compare(call.dk, call.cu_kv, call.want, &DenseResult::dk).norm <
        kRounding);
  CHECK(Compare(call.dv, call.cu_kv, call.want, &DenseResult::dv).norm <
        kRounding);
  CHECK(Compare(call.lse, call.cu_q, call.want, &DenseResult::lse).most < 1e-6);
  for (const HostTensor* t : {&call.q, &call.k, &call.v, &call.o, &call.d_o,
                              &call.lse, &call.dq, &call.dk, &call.dv}) {
    CHECK(t->GapsAreUntouched());
  }
  return bytes;
}

}  // namespace skrull::exec::cudnn::testing
