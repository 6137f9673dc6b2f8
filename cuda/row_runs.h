// Maps of rows, as runs of consecutive rows. A zigzag chunk is consecutive on
// both sides of every copy, so a map has a few runs per sequence and rank of a
// block, whatever the lengths.
#ifndef SKRULL_CUDA_ROW_RUNS_H_
#define SKRULL_CUDA_ROW_RUNS_H_

#include <cstdint>

namespace skrull::exec {

// `count` rows from row `src` on become rows from `dst` on. `begin` is the sum
// of the counts before it, so that row i of the list belongs to the last run
// with begin <= i: a kernel finds it by bisection.
struct CopyRun {
  int32_t begin = 0;
  int32_t dst = 0;
  int32_t src = 0;
  int32_t count = 0;

  friend bool operator==(const CopyRun&, const CopyRun&) = default;
};

// Rows [dst, dst + count) become the sum of the rows from `first` and from
// `second` on; -1 stands for zeros. The runs of a list tile [0, rows) in order.
struct FoldRun {
  int32_t dst = 0;
  int32_t count = 0;
  int32_t first = -1;
  int32_t second = -1;

  friend bool operator==(const FoldRun&, const FoldRun&) = default;
};

// A list of runs, on the host and on the device. Both outlive the work.
template <class Run>
struct RunList {
  const Run* host = nullptr;
  const Run* device = nullptr;
  int32_t count = 0;  // runs
  int32_t rows = 0;   // sum of their counts
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_ROW_RUNS_H_
