// What the attention kernels assume of a call, beyond attention_check.h.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_FLASH_CHECK_H_
#define SKRULL_CUDA_ATTENTION_CUDA_FLASH_CHECK_H_

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::flash {

// UNSUPPORTED naming the field, unless dtype is float16 or bfloat16, head_dim
// is 64 or 128, and scale is above 0 and a normal float32.
// REQUIRES: CheckProblem(problem).
Status CheckFlashProblem(const AttentionProblem& problem);

// UNSUPPORTED for more rows than the kernels count, 2^31 - 256, and for more
// query rows times heads than 8 to each block of a grid, 2^34 - 8.
// REQUIRES: CheckFlashProblem(problem).
Status CheckFlashBounds(const AttentionProblem& problem,
                        const SegmentBounds& bounds);

// INVALID_ARGUMENT naming the tensor of 16-bit values whose rows are not all
// aligned to 16 bytes, the LSE that is not aligned to 4, or the array of
// segments that is not on the device; what CheckFlashBounds returns.
// REQUIRES: CheckFlashProblem(call.problem), and CheckForward(call) or
// CheckBackward(call).
Status CheckFlashForward(const AttentionForward& call);
Status CheckFlashBackward(const AttentionBackward& call);

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_FLASH_CHECK_H_
