#include "skrull/cuda/cpu/host_device.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "skrull/cuda/cpu/host_types.h"
#include "skrull/cuda/cpu/rank_sum.h"
#include "skrull/cuda/cpu/row_kernels.h"
#include "skrull/cuda/row_checks.h"

namespace skrull::exec {
namespace {

constexpr std::align_val_t kAlignment{256};

// Enqueues `kernel` for each pair.
template <class Run>
Status EnqueuePairs(std::span<const RowPair> pairs, RunList<Run> runs,
                    Stream stream,
                    void (*kernel)(const RowPair&, std::span<const Run>)) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckRowPairs(pairs, runs));
  std::array<RowPair, kMaxRowPairs> copies;
  std::ranges::copy(pairs, copies.begin());
  return EnqueueOnHost(stream,
                       [copies, count = pairs.size(), runs,
                        kernel](const Status& device) -> Status {
                         if (!device.ok()) return {};
                         const std::span<const Run> list(
                             runs.host, static_cast<size_t>(runs.count));
                         for (size_t i = 0; i < count; ++i)
                           kernel(copies[i], list);
                         return {};
                       });
}

}  // namespace

Result<Buffer> AllocateHostMemory(int64_t bytes) {
  if (bytes < 0) {
    return InvalidArgument("a buffer of " + std::to_string(bytes) + " bytes");
  }
  void* data = ::operator new(static_cast<size_t>(std::max(bytes, int64_t{1})),
                              kAlignment, std::nothrow);
  if (data == nullptr) {
    return Status(StatusCode::kOutOfMemory,
                  "no " + std::to_string(bytes) + " bytes of host memory");
  }
  return Buffer(data, bytes, [](void* p) { ::operator delete(p, kAlignment); });
}

Result<Buffer> HostDevice::Allocate(int64_t bytes) {
  Result<Buffer> buffer = AllocateHostMemory(bytes);
  if (buffer.ok() && options_.poison_buffers) {
    // All ones are a NaN of every type.
    std::memset(buffer->data(), 0xFF, static_cast<size_t>(bytes));
  }
  return buffer;
}

Status HostDevice::Upload(void* dst, const void* src, int64_t bytes) {
  if (bytes > 0) std::memcpy(dst, src, static_cast<size_t>(bytes));
  return {};
}

Status HostDevice::Zero(void* dst, int64_t bytes, Stream stream) {
  return EnqueueOnHost(stream, [dst, bytes](const Status& device) -> Status {
    if (device.ok()) std::memset(dst, 0, static_cast<size_t>(bytes));
    return {};
  });
}

Status HostDevice::Copy(void* dst, const void* src, int64_t bytes,
                        Stream stream) {
  return EnqueueOnHost(stream, [=](const Status& device) -> Status {
    if (device.ok() && bytes > 0) {
      std::memcpy(dst, src, static_cast<size_t>(bytes));
    }
    return {};
  });
}

Status HostDevice::Sum(void* dst, std::span<const void* const> addends,
                       int64_t count, DType dtype, Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckSum(dst, addends, count, dtype));
  return EnqueueOnHost(
      stream,
      [dst, sends = std::vector(addends.begin(), addends.end()), count,
       dtype](const Status& device) -> Status {
        if (!device.ok()) return {};
        WithHostType(dtype,
                     [&]<class T>(T) { SumRanks<T>(sends, 0, count, dst); });
        return {};
      });
}

Status HostDevice::GatherRows(std::span<const RowPair> pairs,
                              RunList<CopyRun> runs, Stream stream) {
  return EnqueuePairs(pairs, runs, stream, &GatherRowsOnHost);
}

Status HostDevice::AddRows(std::span<const RowPair> pairs,
                           RunList<CopyRun> runs, Stream stream) {
  return EnqueuePairs(pairs, runs, stream, &AddRowsOnHost);
}

Status HostDevice::FoldRows(std::span<const RowPair> pairs,
                            RunList<FoldRun> runs, Stream stream) {
  return EnqueuePairs(pairs, runs, stream, &FoldRowsOnHost);
}

Status HostDevice::MergeAttention(const MergeRows& rows, RunList<CopyRun> runs,
                                  Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckMergeRows(rows, runs));
  return EnqueueOnHost(stream, [rows, runs](const Status& device) -> Status {
    if (device.ok()) {
      MergeAttentionOnHost(rows, {runs.host, static_cast<size_t>(runs.count)});
    }
    return {};
  });
}

void HostDevice::RunTask(const HostTask& task) noexcept {
  try {
    failure_.Set(task(failure_.Get()));
  } catch (const std::bad_alloc&) {
    failure_.Set({StatusCode::kOutOfMemory, "no host memory in a task"});
  } catch (const std::exception& e) {
    failure_.Set({StatusCode::kInternal, e.what()});
  } catch (...) {
    failure_.Set({StatusCode::kInternal, "an unknown exception in a task"});
  }
}

}  // namespace skrull::exec
