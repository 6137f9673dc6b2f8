// How much memory cuDNN's graphs take, as a formula.
#ifndef SKRULL_TESTS_CUDA_CUDNN_GRAPH_WORKSPACE_H_
#define SKRULL_TESTS_CUDA_CUDNN_GRAPH_WORKSPACE_H_

#include <cstdint>

#include "skrull/cuda/attention/cudnn/graph_key.h"

namespace skrull::exec::cudnn::testing {

// The bytes that cuDNN 9.19 takes on sm90 and sm100, as far as rows and heads
// decide: float32 sums of dQ, and of dK and dV for all query heads if there are
// fewer key heads, lying as far apart as the gradients; and a number a row and
// head.
int64_t GraphWorkspace(const GraphKey& key);

}  // namespace skrull::exec::cudnn::testing

#endif  // SKRULL_TESTS_CUDA_CUDNN_GRAPH_WORKSPACE_H_
