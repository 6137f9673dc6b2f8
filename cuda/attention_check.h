// Checks that every attention backend makes before it computes.
#ifndef SKRULL_CUDA_ATTENTION_CHECK_H_
#define SKRULL_CUDA_ATTENTION_CHECK_H_

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

// INVALID_ARGUMENT naming the field that is no attention at all.
Status CheckProblem(const AttentionProblem& problem);

// INVALID_ARGUMENT naming the segment that breaks a rule of segments.h, or the
// tensor whose shape or type is not that of attention_backend.h. O(segments).
// CheckProblem holds.
Status CheckForward(const AttentionForward& call);
Status CheckBackward(const AttentionBackward& call);

// INVALID_ARGUMENT naming the tensor, unless it has this type and shape, or no
// rows of them. Strides must not make elements overlap.
Status CheckTensor(const char* name, const Tensor& tensor, DType dtype,
                   int64_t rows, int32_t heads, int32_t dim);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_ATTENTION_CHECK_H_
