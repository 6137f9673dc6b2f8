// The backend that computes what cuDNN does not.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_FALLBACK_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_FALLBACK_H_

#include <cstdint>
#include <memory>

#include "skrull/cuda/attention/cudnn/events.h"
#include "skrull/cuda/attention/cudnn/refusal.h"
#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/backend_registry.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::cudnn {

// Thread-safe. `events` outlives it.
class Fallback {
 public:
  // `backend`, or why there is none. One that wants its LSE as [heads, rows] is
  // none: a forward pass of either may come before a backward pass of the
  // other.
  Fallback(BackendResult backend, Events* events);

  int32_t kv_tail_rows() const {
    return backend_ == nullptr ? 0 : backend_->kv_tail_rows();
  }

  // OK if it computes the problem that was refused, which is logged once a
  // reason. Errors: UNSUPPORTED, with both refusals.
  Status Accepts(const Refusal& refusal, const AttentionProblem& problem,
                 Pass pass) const;

  // The bytes of workspace of its calls. Errors: NOT_FOUND if there is none;
  // its own.
  Result<int64_t> Prepare(const AttentionProblem& problem,
                          const SegmentBounds& bounds, Pass pass);

  // Accepts, and computes. Counts the reason.
  Status Forward(const Refusal& refusal, const AttentionForward& call,
                 Workspace workspace, Stream stream);
  Status Backward(const Refusal& refusal, const AttentionBackward& call,
                  Workspace workspace, Stream stream);

 private:
  const Status why_none_;  // OK: there is one
  const std::unique_ptr<AttentionBackend> backend_;
  Events* const events_;
};

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_FALLBACK_H_
