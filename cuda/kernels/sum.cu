#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "skrull/cuda/kernels/sum.cuh"
#include "skrull/cuda/kernels/sum.h"
#include "skrull/cuda/row_checks.h"

namespace skrull::exec::internal {
namespace {

// So that a thread an element is no more than a grid has.
constexpr int64_t kSumLimit = int64_t{1} << 36;

bool IsWide(const SumJob& job) {
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0;
  };
  return is_aligned(job.dst) &&
         std::all_of(job.addends, job.addends + job.addend_count, is_aligned);
}

template <int count, class T>
Status LaunchPacks(const SumJob& job, Stream stream) {
  const int64_t threads = job.count / count + job.count % count;
  const int64_t blocks = (threads + kSumThreads - 1) / kSumThreads;
  return SKRULL_LAUNCH((SumKernel<count, T>), static_cast<unsigned>(blocks),
                       kSumThreads, 0, stream, job);
}

template <class T>
Status LaunchAs(const SumJob& job, Stream stream) {
  return IsWide(job) ? LaunchPacks<16 / sizeof(T), T>(job, stream)
                     : LaunchPacks<1, T>(job, stream);
}

}  // namespace

Status LaunchSum(void* dst, std::span<const void* const> addends, int64_t count,
                 DType dtype, Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckSum(dst, addends, count, dtype));
  if (count >= kSumLimit) {
    return InvalidArgument("a sum of " + std::to_string(count) + " elements");
  }
  if (count == 0) return {};
  SumJob job{.dst = dst,
             .addend_count = static_cast<int32_t>(addends.size()),
             .count = count};
  std::ranges::copy(addends, job.addends);
  switch (dtype) {
    case DType::kFloat16:
      return LaunchAs<Float16>(job, stream);
    case DType::kBFloat16:
      return LaunchAs<BFloat16>(job, stream);
    case DType::kFloat32:
      return LaunchAs<float>(job, stream);
    case DType::kFloat64:
      return LaunchAs<double>(job, stream);
  }
  return {};  // CheckSum has refused it
}

}  // namespace skrull::exec::internal
