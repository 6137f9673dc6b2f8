// The sum of a reduce-scatter on the host: one order of additions for all
// communicators, so that they agree in every bit.
#ifndef SKRULL_CUDA_CPU_RANK_SUM_H_
#define SKRULL_CUDA_CPU_RANK_SUM_H_

#include <algorithm>
#include <cstdint>
#include <span>

#include "skrull/cuda/cpu/host_types.h"

namespace skrull::exec {

// recv[i] := sum of sends[r][offset + i] over the ranks r, ascending, in the
// accumulator's type and rounded once.
template <class T>
void SumRanks(std::span<const void* const> sends, int64_t offset, int64_t count,
              void* recv) {
  using Sum = AccumulatorType<T>;
  constexpr int64_t kBatch = 256;
  Sum sums[kBatch];
  for (int64_t begin = 0; begin < count; begin += kBatch) {
    const int64_t n = std::min(kBatch, count - begin);
    std::fill_n(sums, n, Sum{0});
    for (const void* send : sends) {
      const T* from = static_cast<const T*>(send) + offset + begin;
      for (int64_t i = 0; i < n; ++i) sums[i] += ConvertHost<Sum>(from[i]);
    }
    T* to = static_cast<T*>(recv) + begin;
    for (int64_t i = 0; i < n; ++i) to[i] = ConvertHost<T>(sums[i]);
  }
}

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CPU_RANK_SUM_H_
