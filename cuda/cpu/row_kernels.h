// The row kernels of Device on host memory, synchronous. Pure: they touch
// nothing but the rows that the runs name. Shapes and rules as in device.h.
#ifndef SKRULL_CUDA_CPU_ROW_KERNELS_H_
#define SKRULL_CUDA_CPU_ROW_KERNELS_H_

#include <span>

#include "skrull/cuda/device.h"
#include "skrull/cuda/row_runs.h"

namespace skrull::exec {

void GatherRowsOnHost(const RowPair& pair, std::span<const CopyRun> runs);
void AddRowsOnHost(const RowPair& pair, std::span<const CopyRun> runs);
void FoldRowsOnHost(const RowPair& pair, std::span<const FoldRun> runs);
void MergeAttentionOnHost(const MergeRows& rows, std::span<const CopyRun> runs);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CPU_ROW_KERNELS_H_
