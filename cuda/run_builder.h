// Lists of runs of rows, built one piece after another.
#ifndef SKRULL_CUDA_RUN_BUILDER_H_
#define SKRULL_CUDA_RUN_BUILDER_H_

#include <cstdint>
#include <vector>

#include "skrull/cuda/row_runs.h"

namespace skrull::exec {

// Appends rows, lengthening the last run where they continue it.
inline void AddRun(std::vector<CopyRun>* runs, int32_t dst, int32_t src,
                   int32_t count) {
  if (count == 0) return;
  int32_t begin = 0;
  if (!runs->empty()) {
    CopyRun& last = runs->back();
    if (last.dst + last.count == dst && last.src + last.count == src) {
      last.count += count;
      return;
    }
    begin = last.begin + last.count;
  }
  runs->push_back({begin, dst, src, count});
}

// The same, for the next rows of a fold. REQUIRES: `dst` is where the last run
// ends.
inline void AddFold(std::vector<FoldRun>* runs, int32_t dst, int32_t count,
                    int32_t first, int32_t second) {
  if (count == 0) return;
  if (!runs->empty()) {
    FoldRun& last = runs->back();
    const auto goes_on = [&](int32_t before, int32_t now) {
      return before < 0 ? now < 0 : before + last.count == now;
    };
    if (goes_on(last.first, first) && goes_on(last.second, second)) {
      last.count += count;
      return;
    }
  }
  runs->push_back({dst, count, first, second});
}

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_RUN_BUILDER_H_
