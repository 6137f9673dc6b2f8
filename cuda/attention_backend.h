// Attention over a list of segments (segments.h), forward and backward: what a
// kernel library provides. A backend knows nothing of ranks, zigzag or plans.
// Query head h reads key head h / (q_heads / kv_heads).
#ifndef SKRULL_CUDA_ATTENTION_BACKEND_H_
#define SKRULL_CUDA_ATTENTION_BACKEND_H_

#include <cstdint>
#include <string_view>

#include "skrull/cuda/device.h"
#include "skrull/cuda/segments.h"
#include "skrull/cuda/status.h"
#include "skrull/cuda/tensor.h"

namespace skrull::exec {

// What does not change from call to call.
struct AttentionProblem {
  DType dtype = DType::kBFloat16;  // of q, k, v, o and their gradients
  int32_t q_heads = 0;             // a multiple of kv_heads
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  double scale = 0;  // of q.k before the softmax, usually head_dim^-0.5
  // Equal calls give equal bits.
  bool deterministic = true;
};

// The numbers of the enumerations are part of the C interface.
enum class Pass : int32_t { kForward = 0, kBackward = 1 };

// How an LSE must lie in memory: [rows, heads] or [heads, rows].
enum class LseOrder : int32_t { kAny = 0, kRowMajor = 1, kHeadMajor = 2 };

// Shapes: q, o [total_q, q_heads, head_dim]; k, v [total_kv, kv_heads,
// head_dim]; lse [total_q, q_heads, 1] in AccumulatorOf(dtype). Tensors are
// dense in their last dimension and strided otherwise; none overlaps an output.
struct AttentionForward {
  AttentionProblem problem;
  Segments segments;
  Tensor q, k, v;  // only read
  Tensor o, lse;   // every row is written
};

// `o` and `lse` may come from more keys than the segment holds; the gradients
// are then this segment's part of the whole. Ring attention needs it.
struct AttentionBackward {
  AttentionProblem problem;
  Segments segments;
  Tensor q, k, v, o, d_o, lse;  // only read
  Tensor dq, dk, dv;            // every row is overwritten
};

// 256-byte aligned device memory for the duration of one call.
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

// Thread-safe: several ranks of a process may share a backend. Functions that
// take a stream are asynchronous on it; what they read is not changed before
// the work is done. On a host device they enqueue on the stream's HostQueue; on
// CUDA's memory the caller has made the stream's device the thread's current
// one, as for Prepare (Device::AsCurrent).
class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;

  virtual std::string_view name() const = 0;
  virtual MemoryKind memory() const = 0;

  // Can it compute the problem at all? Errors: UNSUPPORTED, naming the field
  // and what is supported.
  virtual Status Supports(const AttentionProblem& problem, Pass pass) const = 0;

  virtual LseOrder lse_order() const = 0;

  // Rows behind the last key row that it may read, and whose finite contents do
  // not matter. The executor keeps them behind its own K and V.
  virtual int32_t kv_tail_rows() const = 0;

  // Builds, or finds in its cache, what calls within these bounds need, and
  // returns the bytes of workspace of such a call. May block for seconds.
  // Errors: UNSUPPORTED, PLAN_BUILD_FAILED.
  virtual Result<int64_t> Prepare(const AttentionProblem& problem,
                                  const SegmentBounds& bounds, Pass pass) = 0;

  // REQUIRES: Prepare for bounds that are no smaller; a workspace of that size.
  virtual Status Forward(const AttentionForward& call, Workspace workspace,
                         Stream stream) = 0;
  virtual Status Backward(const AttentionBackward& call, Workspace workspace,
                          Stream stream) = 0;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_ATTENTION_BACKEND_H_
