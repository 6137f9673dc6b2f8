// What a process uses, as /proc tells.
#ifndef SKRULL_TESTS_SUPPORT_PROCESS_USAGE_H_
#define SKRULL_TESTS_SUPPORT_PROCESS_USAGE_H_

#include <sys/types.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace skrull::testing {

struct ProcessUsage {
  int64_t resident_kib = 0;
  int64_t threads = 0;
  int64_t open_files = 0;
};

// Throws std::runtime_error if there is no such process, or it is another
// user's.
ProcessUsage UsageOf(pid_t pid);

// Slope of the line that fits the points (x, y) best by least squares; 0 for
// fewer than two different x.
double LeastSquaresSlope(const std::vector<std::pair<double, double>>& points);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SUPPORT_PROCESS_USAGE_H_
