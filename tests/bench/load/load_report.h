// A load's figures, for people and as JSON.
#ifndef SKRULL_TESTS_BENCH_LOAD_LOAD_REPORT_H_
#define SKRULL_TESTS_BENCH_LOAD_LOAD_REPORT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "skrull/tests/bench/load/load_options.h"
#include "skrull/tests/bench/load/recorder.h"

namespace skrull::load {

struct LoadReport {
  LoadOptions options;
  double seconds = 0;  // that were recorded
  Recorder::Totals totals;
  int64_t stuck_calls = 0;
  // Of the daemon, if its pid was given: seconds since the start, KiB.
  std::vector<std::pair<double, double>> resident_kib;
};

// A table: a line for each method, and for each reason of its refusals.
std::string TableOf(const LoadReport& report);

// One object; see docs/benchmarks.md.
std::string JsonOf(const LoadReport& report);

}  // namespace skrull::load

#endif  // SKRULL_TESTS_BENCH_LOAD_LOAD_REPORT_H_
