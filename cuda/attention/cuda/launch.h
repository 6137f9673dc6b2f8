// Launches the attention kernels on a stream. Asynchronous; a call that fails
// half way may have enqueued the kernels before.
//
// REQUIRES: CheckFlashForward or CheckFlashBackward (flash_check.h) of the
// call. Errors: UNSUPPORTED for more tiles than a grid has blocks; DEVICE_ERROR
// naming the kernel.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_LAUNCH_H_
#define SKRULL_CUDA_ATTENTION_CUDA_LAUNCH_H_

#include "skrull/cuda/attention/cuda/kernel_params.h"
#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::flash {

Status LaunchForward(const AttentionForward& call, Stream stream);

// The three kernels of a backward pass; the gradients read the statistics,
// which are on the device.
Status LaunchRowStatistics(const AttentionBackward& call,
                           const RowStatistics& statistics, Stream stream);
Status LaunchKeyGradient(const AttentionBackward& call,
                         const RowStatistics& statistics, Stream stream);
Status LaunchQueryGradient(const AttentionBackward& call,
                           const RowStatistics& statistics, Stream stream);

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_LAUNCH_H_
