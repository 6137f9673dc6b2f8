// The `cuda` attention backend: the project's own flash attention kernels, for
// GPUs from sm_80 on. docs/gpu.md describes them.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_CUDA_ATTENTION_H_
#define SKRULL_CUDA_ATTENTION_CUDA_CUDA_ATTENTION_H_

#include <cstdint>
#include <string_view>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

// float16 and bfloat16, head_dim 64 and 128, any ratio of heads, any segments,
// any strides that keep rows aligned to 16 bytes (UNSUPPORTED and
// INVALID_ARGUMENT name what is not). Always deterministic; sums are kept in
// float32, and P and its gradient are rounded to the problem's type before they
// are multiplied. Reads no row behind a segment. The forward pass needs no
// workspace, the backward pass 8 bytes for each query row and head.
class CudaAttention final : public AttentionBackend {
 public:
  // kCuda; or kHost, where the kernels are built for cuda/sim and run on the
  // stream's HostQueue.
  explicit CudaAttention(MemoryKind memory) : memory_(memory) {}

  std::string_view name() const override { return "cuda"; }
  MemoryKind memory() const override { return memory_; }
  Status Supports(const AttentionProblem& problem, Pass pass) const override;
  LseOrder lse_order() const override { return LseOrder::kAny; }
  int32_t kv_tail_rows() const override { return 0; }
  Result<int64_t> Prepare(const AttentionProblem& problem,
                          const SegmentBounds& bounds, Pass pass) override;
  Status Forward(const AttentionForward& call, Workspace workspace,
                 Stream stream) override;
  Status Backward(const AttentionBackward& call, Workspace workspace,
                  Stream stream) override;

 private:
  const MemoryKind memory_;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_ATTENTION_CUDA_CUDA_ATTENTION_H_
