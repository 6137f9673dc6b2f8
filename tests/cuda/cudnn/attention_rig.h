// A cudnn backend over a fake cuDNN, with a fallback that tells when it is
// called.
#ifndef SKRULL_TESTS_CUDA_CUDNN_ATTENTION_RIG_H_
#define SKRULL_TESTS_CUDA_CUDNN_ATTENTION_RIG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "skrull/cuda/attention/cudnn/cudnn_attention.h"
#include "skrull/tests/cuda/attention_call.h"
#include "skrull/tests/cuda/cudnn/fake_cudnn.h"

namespace skrull::exec::cudnn::testing {

using exec::testing::Call;
using exec::testing::Lengths;

// Answers, and computes nothing: its passes are ABORTED, "forward by other" or
// "backward by other".
class RecordingBackend final : public AttentionBackend {
 public:
  LseOrder order = LseOrder::kAny;
  bool supports = true;
  int64_t bytes = 100;

  std::string_view name() const override { return "other"; }
  MemoryKind memory() const override { return MemoryKind::kHost; }
  Status Supports(const AttentionProblem& problem, Pass pass) const override;
  LseOrder lse_order() const override { return order; }
  int32_t kv_tail_rows() const override { return 7; }
  Result<int64_t> Prepare(const AttentionProblem& problem,
                          const SegmentBounds& bounds, Pass pass) override;
  Status Forward(const AttentionForward& call, Workspace workspace,
                 Stream stream) override;
  Status Backward(const AttentionBackward& call, Workspace workspace,
                  Stream stream) override;
};

struct Rig {
  FakeCudnn fake;
  std::vector<std::string> lines;  // of the log
  Events events{[this](const std::string& line) { lines.push_back(line); }};
  RecordingBackend* other = nullptr;
  std::unique_ptr<AttentionBackend> backend;

  explicit Rig(const CudnnOptions& options = {},
               const RecordingBackend& answers = {});

  skrull_cudnn_counters counters() const;
  int64_t fallbacks(Reason reason) const {
    return counters().fallback_calls[static_cast<size_t>(reason)];
  }
};

// A call's workspace, NaN at first.
class WorkspaceMemory {
 public:
  explicit WorkspaceMemory(int64_t bytes);
  Workspace view() { return {memory_.data() + begin_, bytes_}; }
  // Was no byte behind it written?
  bool RestIsUntouched() const;

 private:
  const int64_t bytes_;
  std::vector<char> memory_;
  size_t begin_ = 0;  // aligned to 256 bytes
};

// As exec::testing::MakeCall, with "device" lists, and with an LSE without
// gaps.
std::unique_ptr<Call> MakeCudnnCall(const AttentionProblem& problem, Mask mask,
                                    const std::vector<Lengths>& lengths,
                                    int32_t gap, uint64_t seed);

// bfloat16, head_dim 16, not deterministic.
AttentionProblem Heads(int32_t q_heads, int32_t kv_heads);

// Prepares, runs both passes in as much memory as Prepare asked for, and
// compares with dense attention. Returns the bytes of the backward pass.
int64_t RunAndCompare(Rig* rig, const Call& call);

}  // namespace skrull::exec::cudnn::testing

#endif  // SKRULL_TESTS_CUDA_CUDNN_ATTENTION_RIG_H_
