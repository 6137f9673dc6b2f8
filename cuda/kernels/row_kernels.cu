#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "skrull/cuda/kernels/row_jobs.h"
#include "skrull/cuda/kernels/row_kernels.cuh"
#include "skrull/cuda/kernels/row_kernels.h"
#include "skrull/cuda/row_checks.h"

namespace skrull::exec::internal {
namespace {

RowSide SideOf(const Tensor& tensor) {
  return {.data = tensor.data,
          .dtype = tensor.dtype,
          .row_stride = tensor.row_stride,
          .head_stride = tensor.head_stride};
}

// Are accesses of `bytes` aligned, wherever such a step begins?
bool IsAligned(const RowSide& side, int32_t heads, int64_t bytes) {
  const int64_t size = SizeOf(side.dtype);
  return reinterpret_cast<uintptr_t>(side.data) %
                 static_cast<uintptr_t>(bytes) ==
             0 &&
         side.row_stride * size % bytes == 0 &&
         (heads == 1 || side.head_stride * size % bytes == 0);
}

bool IsWide(const RowJob& job) {
  const int64_t dst_size = SizeOf(job.dst.dtype);
  const int64_t src_size = SizeOf(job.src.dtype);
  const int64_t count = 16 / std::max(dst_size, src_size);
  return job.dim % count == 0 &&
         IsAligned(job.dst, job.heads, count * dst_size) &&
         IsAligned(job.src, job.heads, count * src_size);
}

RowJob JobOf(const RowPair& pair) {
  RowJob job{.dst = SideOf(pair.dst),
             .src = SideOf(pair.src),
             .heads = pair.dst.heads,
             .dim = pair.dst.dim};
  if (job.dst.head_stride == job.dim && job.src.head_stride == job.dim) {
    job.dim *= job.heads;
    job.heads = 1;
  }
  job.is_wide = IsWide(job);
  return job;
}

MergeJob JobOf(const MergeRows& rows) {
  MergeJob job{.o = {.dst = SideOf(rows.o),
                     .src = SideOf(rows.o_part),
                     .heads = rows.o.heads,
                     .dim = rows.o.dim},
               .lse = SideOf(rows.lse),
               .lse_part = SideOf(rows.lse_part),
               .heads = rows.o.heads};
  job.o.is_wide = IsWide(job.o);
  job.o.heads = 1;
  return job;
}

RowJobs JobsOf(std::span<const RowPair> pairs) {
  RowJobs jobs;
  for (size_t i = 0; i < pairs.size(); ++i) jobs.job[i] = JobOf(pairs[i]);
  return jobs;
}

// Blocks for so many warps.
unsigned BlocksFor(int64_t warps) {
  return static_cast<unsigned>((warps + kRowWarps - 1) / kRowWarps);
}

constexpr unsigned kThreads = kRowLanes * kRowWarps;
// A grid has at most 2^31 - 1 blocks.
constexpr int64_t kMaxMerged =
    int64_t{std::numeric_limits<int32_t>::max()} * kRowWarps;

template <class Run>
Status CheckDeviceList(RunList<Run> runs) {
  if (runs.rows > 0 && runs.device == nullptr) {
    return InvalidArgument("the list of runs is not on the device");
  }
  return {};
}

}  // namespace

Status LaunchGatherRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                        Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckRowPairs(pairs, runs));
  SKRULL_EXEC_RETURN_IF_ERROR(CheckDeviceList(runs));
  if (runs.rows == 0) return {};
  const dim3 grid(BlocksFor(runs.rows), static_cast<unsigned>(pairs.size()));
  return SKRULL_LAUNCH(GatherRowsKernel, grid, kThreads, 0, stream,
                       JobsOf(pairs), runs.device, runs.count, runs.rows);
}

Status LaunchAddRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                     Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckRowPairs(pairs, runs));
  SKRULL_EXEC_RETURN_IF_ERROR(CheckDeviceList(runs));
  for (const RowPair& pair : pairs) {
    if (pair.dst.dtype != AccumulatorOf(pair.dst.dtype)) {
      return InvalidArgument("rows are added to " +
                             std::string(DTypeName(pair.dst.dtype)) +
                             ", which is no accumulator");
    }
  }
  if (runs.rows == 0) return {};
  const dim3 grid(BlocksFor(runs.rows), static_cast<unsigned>(pairs.size()));
  return SKRULL_LAUNCH(AddRowsKernel, grid, kThreads, 0, stream, JobsOf(pairs),
                       runs.device, runs.count, runs.rows);
}

Status LaunchFoldRows(std::span<const RowPair> pairs, RunList<FoldRun> runs,
                      Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckRowPairs(pairs, runs));
  SKRULL_EXEC_RETURN_IF_ERROR(CheckDeviceList(runs));
  if (runs.rows == 0) return {};
  const dim3 grid(BlocksFor(runs.rows), static_cast<unsigned>(pairs.size()));
  return SKRULL_LAUNCH(FoldRowsKernel, grid, kThreads, 0, stream, JobsOf(pairs),
                       runs.device, runs.count, runs.rows);
}

Status LaunchMergeAttention(const MergeRows& rows, RunList<CopyRun> runs,
                            Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckMergeRows(rows, runs));
  SKRULL_EXEC_RETURN_IF_ERROR(CheckDeviceList(runs));
  if (runs.rows == 0) return {};
  const MergeJob job = JobOf(rows);
  const int64_t heads = int64_t{runs.rows} * job.heads;
  if (heads > kMaxMerged) {
    return InvalidArgument(std::to_string(heads) +
                           " heads of rows, of which one merge takes " +
                           std::to_string(kMaxMerged));
  }
  return SKRULL_LAUNCH(MergeAttentionKernel, BlocksFor(heads), kThreads, 0,
                       stream, job, runs.device, runs.count, runs.rows);
}

}  // namespace skrull::exec::internal
