#include "skrull/cuda/row_checks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "skrull/cuda/tensor.h"

namespace skrull::exec {
namespace {

constexpr int64_t kRowLimit = int64_t{1} << 30;

// How many rows a list needs the tensors to have.
struct RowsNeeded {
  int64_t dst = 0;
  int64_t src = 0;
};

Status WrongRun(int32_t index, const std::string& why) {
  return InvalidArgument("run " + std::to_string(index) + " " + why);
}

Status CheckTotal(int64_t rows, int64_t listed) {
  if (rows == listed) return {};
  return InvalidArgument("a list of " + std::to_string(listed) +
                         " rows whose runs have " + std::to_string(rows));
}

Status Measure(RunList<CopyRun> runs, RowsNeeded* needed) {
  int64_t rows = 0;
  for (int32_t i = 0; i < runs.count; ++i) {
    const CopyRun& run = runs.host[i];
    if (run.begin != rows || run.count < 0) {
      return WrongRun(i, "begins at " + std::to_string(run.begin) + " with " +
                             std::to_string(run.count) + " rows, after " +
                             std::to_string(rows));
    }
    if (run.dst < 0 || run.src < 0) {
      return WrongRun(i, "begins before the first row");
    }
    rows += run.count;
    needed->dst = std::max(needed->dst, int64_t{run.dst} + run.count);
    needed->src = std::max(needed->src, int64_t{run.src} + run.count);
  }
  return CheckTotal(rows, runs.rows);
}

Status Measure(RunList<FoldRun> runs, RowsNeeded* needed) {
  int64_t rows = 0;
  for (int32_t i = 0; i < runs.count; ++i) {
    const FoldRun& run = runs.host[i];
    if (run.dst != rows || run.count < 0) {
      return WrongRun(i, "begins at " + std::to_string(run.dst) + " with " +
                             std::to_string(run.count) + " rows, after " +
                             std::to_string(rows));
    }
    rows += run.count;
    for (const int32_t first : {run.first, run.second}) {
      if (first < -1) return WrongRun(i, "begins before the first row");
      if (first < 0) continue;
      needed->src = std::max(needed->src, int64_t{first} + run.count);
    }
  }
  needed->dst = rows;
  return CheckTotal(rows, runs.rows);
}

Status CheckType(const std::string& name, DType dtype) {
  if (SizeOf(dtype) > 0) return {};
  return InvalidArgument(name + " has no type " +
                         std::to_string(static_cast<int32_t>(dtype)));
}

bool IsAligned(const void* data, DType dtype) {
  return reinterpret_cast<uintptr_t>(data) %
             static_cast<uintptr_t>(SizeOf(dtype)) ==
         0;
}

Status CheckTensor(const std::string& name, const Tensor& tensor,
                   int64_t needed) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckType(name, tensor.dtype));
  if (tensor.heads < 1 || tensor.dim < 1 ||
      int64_t{tensor.heads} * tensor.dim >= kRowLimit) {
    return InvalidArgument(name + " has " + std::to_string(tensor.heads) +
                           " heads of " + std::to_string(tensor.dim));
  }
  if (tensor.rows < needed) {
    return InvalidArgument(name + " has " + std::to_string(tensor.rows) +
                           " rows, of which the list names " +
                           std::to_string(needed));
  }
  if (needed > 0 && tensor.data == nullptr) {
    return InvalidArgument(name + " has no memory");
  }
  if (!IsAligned(tensor.data, tensor.dtype)) {
    return InvalidArgument(name + " is not aligned to its type");
  }
  return {};
}

Status CheckPair(const std::string& name, const RowPair& pair,
                 const RowsNeeded& needed) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckTensor(name + "dst", pair.dst, needed.dst));
  SKRULL_EXEC_RETURN_IF_ERROR(CheckTensor(name + "src", pair.src, needed.src));
  if (pair.dst.heads != pair.src.heads || pair.dst.dim != pair.src.dim) {
    return InvalidArgument(name + "dst and src differ in heads or dim");
  }
  return {};
}

template <class Run>
Status CheckPairs(std::span<const RowPair> pairs, RunList<Run> runs) {
  if (pairs.empty() || pairs.size() > kMaxRowPairs) {
    return InvalidArgument(std::to_string(pairs.size()) +
                           " pairs of tensors, where 1 to " +
                           std::to_string(kMaxRowPairs) + " are allowed");
  }
  RowsNeeded needed;
  SKRULL_EXEC_RETURN_IF_ERROR(Measure(runs, &needed));
  for (size_t i = 0; i < pairs.size(); ++i) {
    SKRULL_EXEC_RETURN_IF_ERROR(
        CheckPair("pair " + std::to_string(i) + ": ", pairs[i], needed));
  }
  return {};
}

}  // namespace

Status CheckRowPairs(std::span<const RowPair> pairs, RunList<CopyRun> runs) {
  return CheckPairs(pairs, runs);
}

Status CheckRowPairs(std::span<const RowPair> pairs, RunList<FoldRun> runs) {
  return CheckPairs(pairs, runs);
}

Status CheckMergeRows(const MergeRows& rows, RunList<CopyRun> runs) {
  if (rows.o.dtype != AccumulatorOf(rows.o.dtype) ||
      rows.lse.dtype != rows.o.dtype || rows.lse_part.dtype != rows.o.dtype) {
    return InvalidArgument(
        "o, lse and lse_part of a merge have one type, float32 or float64");
  }
  if (rows.lse.heads != rows.o.heads || rows.lse.dim != 1) {
    return InvalidArgument("the LSE of a merge has one value a head of o");
  }
  RowsNeeded needed;
  SKRULL_EXEC_RETURN_IF_ERROR(Measure(runs, &needed));
  SKRULL_EXEC_RETURN_IF_ERROR(CheckPair("o: ", {rows.o, rows.o_part}, needed));
  return CheckPair("lse: ", {rows.lse, rows.lse_part}, needed);
}

Status CheckSum(const void* dst, std::span<const void* const> addends,
                int64_t count, DType dtype) {
  if (addends.empty() || addends.size() > kMaxAddends) {
    return InvalidArgument(std::to_string(addends.size()) +
                           " addends, where 1 to " +
                           std::to_string(kMaxAddends) + " are allowed");
  }
  if (count < 0) {
    return InvalidArgument("a sum of " + std::to_string(count) + " elements");
  }
  SKRULL_EXEC_RETURN_IF_ERROR(CheckType("a sum", dtype));
  if (count == 0) return {};
  if (dst == nullptr || !IsAligned(dst, dtype)) {
    return InvalidArgument("a sum's dst has no memory, or is not aligned");
  }
  for (size_t i = 0; i < addends.size(); ++i) {
    if (addends[i] == nullptr || !IsAligned(addends[i], dtype)) {
      return InvalidArgument("addend " + std::to_string(i) +
                             " has no memory, or is not aligned");
    }
  }
  return {};
}

}  // namespace skrull::exec
