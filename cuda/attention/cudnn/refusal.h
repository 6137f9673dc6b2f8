// What this backend does not do with cuDNN, and why.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_REFUSAL_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_REFUSAL_H_

#include <cstdint>
#include <optional>
#include <string>

#include "skrull/cuda/attention/cudnn/cudnn_api.h"
#include "skrull/cuda/attention/cudnn/graph_key.h"
#include "skrull/cuda/attention_backend.h"

namespace skrull::exec::cudnn {

// The numbers index counters (counters.h): never change one, only add.
enum class Reason : int32_t {
  kDType = 0,
  kHeadDim = 1,
  kArchitecture = 2,
  kVersion = 3,
  kDeterminism = 4,
  kSegments = 5,
  kLayout = 6,
  kWorkspace = 7,
  kNoKernel = 8,
};
inline constexpr int kReasons = 9;

// "dtype", "head_dim" and so on.
const char* ReasonName(Reason reason);

struct Refusal {
  Reason reason = Reason::kDType;
  std::string text;  // names the field, its value and what is possible
};

// What a problem alone decides, on this device. CheckProblem holds.
std::optional<Refusal> RefuseProblem(const AttentionProblem& problem, Pass pass,
                                     const DeviceInfo& device);

std::optional<Refusal> RefuseBounds(const SegmentBounds& bounds);

// Strides of one row or one head alone do not matter, and are those of a dense
// tensor here.
Strides NormalStrides(const Tensor& tensor);

// Kernels move 16 bytes at a time and check neither pointers nor strides, so
// that wrong ones give wrong numbers. Heads must lie inside rows of less than 2
// GiB, and a log-sum-exp dense, for the workspace of a backward graph is sized
// by it.
std::optional<Refusal> RefuseLayout(Role role, const Tensor& tensor);

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_REFUSAL_H_
