// How long a piece of work on a stream takes.
#ifndef SKRULL_CUDA_PROFILE_MEASURE_H_
#define SKRULL_CUDA_PROFILE_MEASURE_H_

#include <cstdint>
#include <functional>

#include "skrull/cuda/status.h"

namespace skrull::profile {

// Seconds since some start; never falls.
using Clock = std::function<double()>;

// Of the machine.
Clock WallClock();
// CPU seconds of all threads of this process: of use where the ranks, or other
// programs, share the cores, so that wall time says little. Not for GPUs.
Clock ProcessCpuClock();

struct MeasureOptions {
  int32_t warm_ups = 2;  // calls before the first sample, >= 0
  int32_t samples = 11;  // >= 1
  // A sample repeats the call until it lasts about so long, > 0. The host's
  // part of a sample, one enqueue and one wait that nothing hides, is 10 to 20
  // microseconds on a GPU: at most 1 percent of 2 milliseconds.
  double least_sample_seconds = 2e-3;
};

struct Timing {
  double seconds = 0;  // of one call: the median of the samples
  // Interquartile range over the median: 0 if all samples are equal.
  double spread = 0;
  int64_t calls_per_sample = 0;
};

// What to measure. `enqueue` may be asynchronous; `synchronize` waits for it.
struct TimedWork {
  std::function<exec::Status()> enqueue;
  std::function<exec::Status()> synchronize;
};

// Most calls of a sample that Measure chooses: bounds what is enqueued at once.
inline constexpr int64_t kMaxCallsPerSample = 1000;

// Calls `work` warm_ups times, once to choose the number of calls of a sample,
// and samples * calls times. With `calls` > 0 that number is given, and the
// call to choose it is left out: ranks that measure a collective must all call
// it as often. Errors: those of `work`, at once.
exec::Result<Timing> Measure(const TimedWork& work, const Clock& clock,
                             const MeasureOptions& options, int64_t calls = 0);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_MEASURE_H_
