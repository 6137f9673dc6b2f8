#include "skrull/cuda/attention_check.h"

#include <cmath>
#include <cstdint>
#include <string>

namespace skrull::exec {
namespace {

Status CheckSegments(const Segments& segments) {
  const SegmentBounds& bounds = segments.bounds;
  if (bounds.count < 1 || segments.cu_q == nullptr ||
      segments.cu_kv == nullptr) {
    return InvalidArgument("an attention call without segments");
  }
  if (segments.cu_q[0] != 0 || segments.cu_kv[0] != 0) {
    return InvalidArgument("cu_seqlens do not begin with 0");
  }
  for (int32_t i = 0; i < bounds.count; ++i) {
    const int64_t q = int64_t{segments.cu_q[i + 1]} - segments.cu_q[i];
    const int64_t kv = int64_t{segments.cu_kv[i + 1]} - segments.cu_kv[i];
    const int64_t least = bounds.mask == Mask::kCausalBottomRight ? q : 1;
    if (q < 1 || kv < least || q > bounds.max_q || kv > bounds.max_kv) {
      return InvalidArgument("segment " + std::to_string(i) + " has " +
                             std::to_string(q) + " queries and " +
                             std::to_string(kv) +
                             " keys, which its mask or bounds forbid");
    }
  }
  if (segments.cu_q[bounds.count] != bounds.total_q ||
      segments.cu_kv[bounds.count] != bounds.total_kv) {
    return InvalidArgument("cu_seqlens do not end with the total rows");
  }
  return {};
}

// Does a stride hold `count` runs of `dim` elements, `inner` apart? As outer >=
// (count - 1) * inner + dim, whose right side a caller's stride may overflow.
bool Holds(int64_t outer, int64_t count, int64_t inner, int64_t dim) {
  return outer >= dim && (count == 1 || inner <= (outer - dim) / (count - 1));
}

}  // namespace

Status CheckProblem(const AttentionProblem& problem) {
  if (DTypeName(problem.dtype) == "unknown") {
    return InvalidArgument("dtype " +
                           std::to_string(static_cast<int32_t>(problem.dtype)) +
                           " is no type");
  }
  if (problem.kv_heads < 1) {
    return InvalidArgument("kv_heads is " + std::to_string(problem.kv_heads));
  }
  if (problem.q_heads < 1 || problem.q_heads % problem.kv_heads != 0) {
    return InvalidArgument("q_heads is " + std::to_string(problem.q_heads) +
                           ", no multiple of kv_heads " +
                           std::to_string(problem.kv_heads));
  }
  if (problem.head_dim < 1) {
    return InvalidArgument("head_dim is " + std::to_string(problem.head_dim));
  }
  if (!std::isfinite(problem.scale)) {
    return InvalidArgument("scale is " + std::to_string(problem.scale));
  }
  return {};
}

Status CheckTensor(const char* name, const Tensor& tensor, DType dtype,
                   int64_t rows, int32_t heads, int32_t dim) {
  if (tensor.rows != rows) {
    return InvalidArgument(std::string(name) + " has " +
                           std::to_string(tensor.rows) + " rows, not " +
                           std::to_string(rows));
  }
  if (rows == 0) return {};
  if (tensor.dtype != dtype) {
    return InvalidArgument(std::string(name) + " is " +
                           std::string(DTypeName(tensor.dtype)) + ", not " +
                           std::string(DTypeName(dtype)));
  }
  if (tensor.heads != heads || tensor.dim != dim) {
    return InvalidArgument(
        std::string(name) + " is [rows, " + std::to_string(tensor.heads) +
        ", " + std::to_string(tensor.dim) + "], not [rows, " +
        std::to_string(heads) + ", " + std::to_string(dim) + "]");
  }
  if (tensor.data == nullptr) {
    return InvalidArgument(std::string(name) + " has no data");
  }
  // Heads inside rows, or rows inside heads.
  const bool row_major =
      (heads == 1 || tensor.head_stride >= dim) &&
      (rows == 1 || Holds(tensor.row_stride, heads, tensor.head_stride, dim));
  const bool head_major =
      (rows == 1 || tensor.row_stride >= dim) &&
      (heads == 1 || Holds(tensor.head_stride, rows, tensor.row_stride, dim));
  if (!row_major && !head_major) {
    return InvalidArgument(std::string(name) + " overlaps itself: row_stride " +
                           std::to_string(tensor.row_stride) +
                           ", head_stride " +
                           std::to_string(tensor.head_stride));
  }
  return {};
}

Status CheckForward(const AttentionForward& call) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckSegments(call.segments));
  const AttentionProblem& p = call.problem;
  const SegmentBounds& b = call.segments.bounds;
  for (const auto& [name, tensor] :
       {std::pair("q", &call.q), std::pair("o", &call.o)}) {
    SKRULL_EXEC_RETURN_IF_ERROR(
        CheckTensor(name, *tensor, p.dtype, b.total_q, p.q_heads, p.head_dim));
  }
  for (const auto& [name, tensor] :
       {std::pair("k", &call.k), std::pair("v", &call.v)}) {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckTensor(name, *tensor, p.dtype, b.total_kv,
                                            p.kv_heads, p.head_dim));
  }
  return CheckTensor("lse", call.lse, AccumulatorOf(p.dtype), b.total_q,
                     p.q_heads, 1);
}

Status CheckBackward(const AttentionBackward& call) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckSegments(call.segments));
  const AttentionProblem& p = call.problem;
  const SegmentBounds& b = call.segments.bounds;
  for (const auto& [name, tensor] :
       {std::pair("q", &call.q), std::pair("o", &call.o),
        std::pair("d_o", &call.d_o), std::pair("dq", &call.dq)}) {
    SKRULL_EXEC_RETURN_IF_ERROR(
        CheckTensor(name, *tensor, p.dtype, b.total_q, p.q_heads, p.head_dim));
  }
  for (const auto& [name, tensor] :
       {std::pair("k", &call.k), std::pair("v", &call.v),
        std::pair("dk", &call.dk), std::pair("dv", &call.dv)}) {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckTensor(name, *tensor, p.dtype, b.total_kv,
                                            p.kv_heads, p.head_dim));
  }
  return CheckTensor("lse", call.lse, AccumulatorOf(p.dtype), b.total_q,
                     p.q_heads, 1);
}

}  // namespace skrull::exec
