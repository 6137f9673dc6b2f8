// How one call runs as graphs: by how many groups of key heads, in what memory.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_CALL_SPLIT_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_CALL_SPLIT_H_

#include <array>
#include <cstdint>
#include <variant>

#include "skrull/cuda/attention/cudnn/cudnn_api.h"
#include "skrull/cuda/attention/cudnn/graph_key.h"
#include "skrull/cuda/attention/cudnn/plan_cache.h"
#include "skrull/cuda/attention/cudnn/refusal.h"
#include "skrull/cuda/attention_backend.h"

namespace skrull::exec::cudnn {

// What of a call decides how it runs.
struct CallShape {
  AttentionProblem problem;
  Pass pass = Pass::kForward;
  SegmentBounds bounds;
  std::array<Strides, kRoles> strides = {};
};

// A call's tensors, by role; those of a forward call have no DO, DQ, DK, DV.
using CallTensors = std::array<Tensor, kRoles>;
CallTensors TensorsOf(const AttentionForward& call);
CallTensors TensorsOf(const AttentionBackward& call);

// All tensors dense.
CallShape DenseShape(const AttentionProblem& problem,
                     const SegmentBounds& bounds, Pass pass);
CallShape ShapeOf(const AttentionProblem& problem, const SegmentBounds& bounds,
                  Pass pass, const CallTensors& tensors);

// The workspace of a call: segment arrays, the graph's own, then dQ, dK and dV
// of one group, if they are staged.
//
// Invariant: kv_heads is a multiple of groups; graph belongs to key, whose
// heads are those of one group.
struct CallSplit {
  GraphKey key;
  Graph* graph = nullptr;
  int32_t groups = 1;
  // cuDNN keeps float32 sums of dQ, dK and dV as far apart as the gradients
  // lie, and of dK and dV for all query heads. Gradients of a part of the
  // heads, or of a tensor that holds more than them, are therefore written
  // densely and copied.
  bool staged = false;
  int64_t graph_at = 0;  // in bytes from the begin of the workspace
  std::array<int64_t, kRoles> staged_at = {};
  int64_t bytes = 0;
};

using Choice = std::variant<CallSplit, Refusal>;

// The fewest groups whose workspace fits `budget` bytes, so that a call gets
// what it was prepared with: workspace shrinks with every more groups. Builds
// the graphs that it tries. Errors: those of PlanCache::Get; that cuDNN has no
// kernel, or none that fits, is a Refusal.
Result<Choice> ChooseSplit(const CallShape& shape, const DeviceInfo& device,
                           int64_t budget, PlanCache* cache);

// The graph of one of `groups`.
GraphKey KeyOf(const CallShape& shape, int32_t groups);

// Enqueues the call. REQUIRES: the workspace has split.bytes.
Status RunSplit(const CallSplit& split, const Segments& segments,
                const CallTensors& tensors, void* workspace, Stream stream,
                CudnnApi* api);

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_CALL_SPLIT_H_
