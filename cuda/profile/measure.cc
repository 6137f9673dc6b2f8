#include "skrull/cuda/profile/measure.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <vector>

namespace skrull::profile {
namespace {

using exec::Result;
using exec::Status;

Status RunCalls(const TimedWork& work, int64_t calls) {
  for (int64_t i = 0; i < calls; ++i) {
    SKRULL_EXEC_RETURN_IF_ERROR(work.enqueue());
  }
  return work.synchronize();
}

Result<double> SampleSeconds(const TimedWork& work, const Clock& clock,
                             int64_t calls) {
  const double begin = clock();
  SKRULL_EXEC_RETURN_IF_ERROR(RunCalls(work, calls));
  return (clock() - begin) / static_cast<double>(calls);
}

// Of sorted values, linear between them. REQUIRES: values is not empty.
double Quantile(const std::vector<double>& values, double share) {
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] +
         (at - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace

Clock WallClock() {
  return [] {
    return std::chrono::duration<double>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
}

Clock ProcessCpuClock() {
  return [] {
    timespec now{};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) +
           1e-9 * static_cast<double>(now.tv_nsec);
  };
}

Result<Timing> Measure(const TimedWork& work, const Clock& clock,
                       const MeasureOptions& options, int64_t calls) {
  SKRULL_EXEC_RETURN_IF_ERROR(work.synchronize());
  SKRULL_EXEC_RETURN_IF_ERROR(RunCalls(work, options.warm_ups));
  if (calls == 0) {
    const Result<double> once = SampleSeconds(work, clock, 1);
    SKRULL_EXEC_RETURN_IF_ERROR(once.status());
    const double wanted = options.least_sample_seconds / *once;
    calls = wanted < static_cast<double>(kMaxCallsPerSample)
                ? std::max(int64_t{1}, static_cast<int64_t>(std::ceil(wanted)))
                : kMaxCallsPerSample;
  }
  std::vector<double> samples;
  for (int32_t i = 0; i < options.samples; ++i) {
    const Result<double> seconds = SampleSeconds(work, clock, calls);
    SKRULL_EXEC_RETURN_IF_ERROR(seconds.status());
    samples.push_back(*seconds);
  }
  std::sort(samples.begin(), samples.end());
  Timing timing = {.seconds = Quantile(samples, 0.5),
                   .calls_per_sample = calls};
  if (timing.seconds > 0) {
    timing.spread =
        (Quantile(samples, 0.75) - Quantile(samples, 0.25)) / timing.seconds;
  }
  return timing;
}

}  // namespace skrull::profile
