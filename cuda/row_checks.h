// What every Device demands of the arguments of its kernels (device.h), so that
// a kernel can take them as they are.
#ifndef SKRULL_CUDA_ROW_CHECKS_H_
#define SKRULL_CUDA_ROW_CHECKS_H_

#include <cstdint>
#include <span>

#include "skrull/cuda/device.h"
#include "skrull/cuda/row_runs.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

// REQUIRES: runs.host has runs.count runs. Tensors without memory pass where
// the list has no rows. Errors: INVALID_ARGUMENT naming the pair, or the run,
// and what is wrong: a number of pairs that is not 1 .. kMaxRowPairs; heads or
// dim that differ or are not positive; 2^30 elements a row and more; a type
// that is none; memory that is missing or not aligned to its type; runs that do
// not count the list's rows in order, or name rows that the tensors lack.
//
// Not checked: that no row is written twice, and that what is written is not
// read.
Status CheckRowPairs(std::span<const RowPair> pairs, RunList<CopyRun> runs);
Status CheckRowPairs(std::span<const RowPair> pairs, RunList<FoldRun> runs);

// As CheckRowPairs. Besides, o, lse and lse_part have one type, float32 or
// float64, and an LSE has dim 1.
Status CheckMergeRows(const MergeRows& rows, RunList<CopyRun> runs);

// Errors: INVALID_ARGUMENT for a number of addends that is not 1 ..
// kMaxAddends, a negative count, a type that is none, and memory that is
// missing or not aligned to it.
Status CheckSum(const void* dst, std::span<const void* const> addends,
                int64_t count, DType dtype);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_ROW_CHECKS_H_
