#include "skrull/cuda/attention/cuda/flash_check.h"

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

namespace skrull::exec::flash {
namespace {

constexpr int64_t kPieceBytes = 16;  // that kernels move at once
// A tile may begin less than 256 rows before the last row, and ends in int32_t.
constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max() - 255;
// What a grid of RowStatisticsKernel has, with 8 rows of 128 columns a block.
constexpr int64_t kMostHeadRows =
    8 * int64_t{std::numeric_limits<int32_t>::max()};

Status Unsupported(const std::string& what) {
  return {StatusCode::kUnsupported, "the cuda backend has no kernel: " + what};
}

Status CheckPointer(const char* name, const void* data, int64_t bytes) {
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0) {
    return {};
  }
  return InvalidArgument(std::string(name) + " is not aligned to " +
                         std::to_string(bytes) +
                         " bytes, as the cuda backend needs it");
}

Status CheckAlignment(const char* name, const Tensor& tensor) {
  if (tensor.rows == 0) return {};
  const int64_t elements = kPieceBytes / SizeOf(tensor.dtype);
  SKRULL_EXEC_RETURN_IF_ERROR(CheckPointer(name, tensor.data, kPieceBytes));
  for (const auto& [stride_name, stride, used] :
       {std::tuple("row_stride", tensor.row_stride, tensor.rows > 1),
        std::tuple("head_stride", tensor.head_stride, tensor.heads > 1)}) {
    if (used && stride % elements != 0) {
      return InvalidArgument(std::string(name) + " has a " + stride_name +
                             " of " + std::to_string(stride) +
                             " elements, where the cuda backend needs a "
                             "multiple of " +
                             std::to_string(elements));
    }
  }
  return {};
}

using NamedTensors =
    std::initializer_list<std::pair<const char*, const Tensor*>>;

// `tensors` are all but the LSE.
Status CheckCall(const AttentionProblem& problem, const Segments& segments,
                 const Tensor& lse, const NamedTensors& tensors) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckFlashBounds(problem, segments.bounds));
  if (segments.device_cu_q == nullptr || segments.device_cu_kv == nullptr) {
    return InvalidArgument(
        "an attention call without cu_seqlens on the device");
  }
  for (const auto& [name, tensor] : tensors) {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckAlignment(name, *tensor));
  }
  return CheckPointer("lse", lse.data, sizeof(float));
}

}  // namespace

Status CheckFlashProblem(const AttentionProblem& problem) {
  if (problem.dtype != DType::kFloat16 && problem.dtype != DType::kBFloat16) {
    return Unsupported("dtype is " + std::string(DTypeName(problem.dtype)) +
                       ", not float16 or bfloat16");
  }
  if (problem.head_dim != 64 && problem.head_dim != 128) {
    return Unsupported("head_dim is " + std::to_string(problem.head_dim) +
                       ", not 64 or 128");
  }
  // Scaled scores then have their maximum where the unscaled ones have it.
  if (!(problem.scale >= std::numeric_limits<float>::min() &&
        problem.scale <= std::numeric_limits<float>::max() / 2)) {
    return Unsupported("scale is " + std::to_string(problem.scale) +
                       ", not above 0 and a float32");
  }
  return {};
}

Status CheckFlashBounds(const AttentionProblem& problem,
                        const SegmentBounds& bounds) {
  for (const auto& [name, rows] : {std::pair("queries", bounds.total_q),
                                   std::pair("keys", bounds.total_kv)}) {
    if (rows > kMostRows) {
      return Unsupported(std::to_string(rows) + " rows of " + name);
    }
  }
  if (bounds.total_q > kMostHeadRows / problem.q_heads) {
    return Unsupported(std::to_string(bounds.total_q) + " rows of " +
                       std::to_string(problem.q_heads) + " query heads");
  }
  return {};
}

Status CheckFlashForward(const AttentionForward& call) {
  return CheckCall(
      call.problem, call.segments, call.lse,
      {{"q", &call.q}, {"k", &call.k}, {"v", &call.v}, {"o", &call.o}});
}

Status CheckFlashBackward(const AttentionBackward& call) {
  return CheckCall(call.problem, call.segments, call.lse,
                   {{"q", &call.q},
                    {"k", &call.k},
                    {"v", &call.v},
                    {"o", &call.o},
                    {"d_o", &call.d_o},
                    {"dq", &call.dq},
                    {"dk", &call.dk},
                    {"dv", &call.dv}});
}

}  // namespace skrull::exec::flash
