// The row kernels of Device, launched: shapes and rules are device.h's. On a
// stream of a GPU, or under cuda/sim of a device with host memory.
//
// Accesses have 16 bytes of the wider type where the pointers, strides and the
// number of elements allow it, and one element elsewhere; the results are the
// same.
//
// Errors of all: INVALID_ARGUMENT, before anything is launched, for what
// row_checks.h refuses and for a list that is not on the device; DEVICE_ERROR
// if the launch is refused.
#ifndef SKRULL_CUDA_KERNELS_ROW_KERNELS_H_
#define SKRULL_CUDA_KERNELS_ROW_KERNELS_H_

#include <span>

#include "skrull/cuda/device.h"
#include "skrull/cuda/row_runs.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::internal {

Status LaunchGatherRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                        Stream stream);
// Refuses a dst that has neither float32 nor float64.
Status LaunchAddRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                     Stream stream);
Status LaunchFoldRows(std::span<const RowPair> pairs, RunList<FoldRun> runs,
                      Stream stream);
// Refuses more rows * heads than a grid has warps, 2^33 - 4.
Status LaunchMergeAttention(const MergeRows& rows, RunList<CopyRun> runs,
                            Stream stream);

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_KERNELS_ROW_KERNELS_H_
