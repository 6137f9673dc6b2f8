// The `cudnn` attention backend: cuDNN's fused attention over packed segments.
//
// Segments of a call become one graph: ragged tensors, lengths by segment,
// bottom-right causal or full, log-sum-exp [rows, heads]. What cuDNN cannot, or
// only with too much memory, another backend computes (refusal.h), which is
// logged once a reason and counted.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_CUDNN_ATTENTION_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_CUDNN_ATTENTION_H_

#include <memory>

#include "skrull/cuda/attention/cudnn/cudnn_api.h"
#include "skrull/cuda/attention/cudnn/events.h"
#include "skrull/cuda/attention/cudnn/options.h"
#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/backend_registry.h"

namespace skrull::exec::cudnn {

// Rows behind K and V that a kernel's last tile may load: the largest tile.
inline constexpr int32_t kKvTailRows = 128;

// `fallback`: the backend for the rest, or why there is none; then the rest is
// UNSUPPORTED, with both reasons. All calls use the calling thread's current
// device. `api` and `events` outlive the backend.
//
// Prepare builds graphs for dense tensors; the first call with other strides
// builds its own, and blocks for about a second. Gradients that are not dense
// take more workspace, so that such a call runs in more groups of heads, or
// falls back if even a single key head does not fit.
std::unique_ptr<AttentionBackend> CreateCudnnAttention(
    const CudnnOptions& options, CudnnApi* api, BackendResult fallback,
    Events* events);

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_CUDNN_ATTENTION_H_
