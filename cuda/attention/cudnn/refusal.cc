#include "skrull/cuda/attention/cudnn/refusal.h"

#include <array>
#include <cstddef>

namespace skrull::exec::cudnn {
namespace {

// Tests ask 9.19. What older ones are known to lack, the frontend refuses; for
// ones before 9.8 it cannot be asked without a GPU.
constexpr int64_t kOldestCudnn = 90800;
constexpr int64_t kOldestDeterministic = 91800;  // on sm100

constexpr int32_t kLargestHeadDim = 128;
constexpr int64_t kVectorBytes = 16;
// The most that cudaMemcpy2DAsync takes between rows (cudaDevAttrMaxPitch).
// With it, no product of rows and strides overflows.
constexpr int64_t kMostRowBytes = (int64_t{1} << 31) - 1;

Refusal LayoutRefusal(Role role, const std::string& what) {
  return {Reason::kLayout, std::string(RoleName(role)) + " " + what};
}

}  // namespace

const char* ReasonName(Reason reason) {
  constexpr std::array<const char*, kReasons> kNames = {
      "dtype",    "head_dim", "architecture", "version",  "determinism",
      "segments", "layout",   "workspace",    "no kernel"};
  return kNames[static_cast<size_t>(reason)];
}

std::optional<Refusal> RefuseProblem(const AttentionProblem& problem, Pass pass,
                                     const DeviceInfo& device) {
  if (problem.dtype != DType::kFloat16 && problem.dtype != DType::kBFloat16) {
    return Refusal{Reason::kDType, "dtype is " +
                                       std::string(DTypeName(problem.dtype)) +
                                       "; cudnn has float16 and bfloat16"};
  }
  // Other multiples of 8 run too, but with a backward workspace of segments
  // times the longest one.
  if (problem.head_dim % 16 != 0 || problem.head_dim > kLargestHeadDim) {
    return Refusal{Reason::kHeadDim, "head_dim is " +
                                         std::to_string(problem.head_dim) +
                                         "; cudnn has multiples of 16 up to " +
                                         std::to_string(kLargestHeadDim)};
  }
  // On sm8x and sm12x, backward graphs take no LSE of packed rows.
  const int32_t major = device.sm / 10;
  if (major != 9 && major != 10) {
    return Refusal{Reason::kArchitecture,
                   "the device is sm" + std::to_string(device.sm) +
                       "; cudnn runs packed segments on sm9x and sm10x"};
  }
  if (device.cudnn_version < kOldestCudnn) {
    return Refusal{Reason::kVersion,
                   "cuDNN is " + std::to_string(device.cudnn_version) +
                       "; it must be " + std::to_string(kOldestCudnn) +
                       " or later"};
  }
  if (!problem.deterministic || pass == Pass::kForward) return std::nullopt;
  // There it keeps all scores: bytes of segments * heads * q * kv.
  if (major == 9) {
    return Refusal{Reason::kDeterminism,
                   "deterministic is true; on sm" + std::to_string(device.sm) +
                       " cudnn's deterministic backward pass needs memory of "
                       "queries times keys"};
  }
  if (device.cudnn_version < kOldestDeterministic) {
    return Refusal{Reason::kDeterminism,
                   "deterministic is true; cuDNN is " +
                       std::to_string(device.cudnn_version) + " and must be " +
                       std::to_string(kOldestDeterministic) + " for that"};
  }
  return std::nullopt;
}

std::optional<Refusal> RefuseBounds(const SegmentBounds& bounds) {
  if (bounds.count <= kMaxSegments) return std::nullopt;
  return Refusal{Reason::kSegments,
                 std::to_string(bounds.count) + " segments in a call; cudnn " +
                     "has at most " + std::to_string(kMaxSegments)};
}

Strides NormalStrides(const Tensor& tensor) {
  Strides strides{tensor.row_stride, tensor.head_stride};
  if (tensor.heads == 1) strides.head = tensor.dim;
  if (tensor.rows != 1) return strides;
  // No row holds heads so far apart; RefuseLayout says so.
  const bool far = strides.head > kMostRowBytes;
  strides.row = far ? strides.head : strides.head * tensor.heads;
  return strides;
}

std::optional<Refusal> RefuseLayout(Role role, const Tensor& tensor) {
  const Strides strides = NormalStrides(tensor);
  if (role == Role::kLse) {
    if (strides == Strides{tensor.heads, 1}) return std::nullopt;
    return LayoutRefusal(role, "is not a dense [rows, heads]");
  }
  const int64_t unit = kVectorBytes / SizeOf(tensor.dtype);
  if (reinterpret_cast<uintptr_t>(tensor.data) % kVectorBytes != 0) {
    return LayoutRefusal(role, "is not aligned to 16 bytes");
  }
  if (strides.row % unit != 0 || strides.head % unit != 0) {
    return LayoutRefusal(role, "has strides " + std::to_string(strides.row) +
                                   " and " + std::to_string(strides.head) +
                                   ", no multiples of 16 bytes");
  }
  // As head * heads > row, which may overflow.
  if (strides.head > strides.row / tensor.heads) {
    return LayoutRefusal(role, "does not hold its heads inside rows");
  }
  if (strides.row > kMostRowBytes / SizeOf(tensor.dtype)) {
    return LayoutRefusal(role, "has rows 2 GiB apart or more");
  }
  return std::nullopt;
}

}  // namespace skrull::exec::cudnn
