// Refits what a rank's rows take to measured peaks of memory.
//
// Pure; safe from any thread.
#ifndef SKRULL_SERVER_CALIBRATION_MEMORY_FIT_H_
#define SKRULL_SERVER_CALIBRATION_MEMORY_FIT_H_

#include <cstdint>
#include <optional>
#include <span>

#include "skrull/planner/job.h"
#include "skrull/server/calibration/numbers.h"
#include "skrull/server/calibration/reported_step.h"

namespace skrull::calibration {

// peak = static_bytes + bytes_per_token * rows, gathered keys and values apart.
struct MemoryFit {
  double bytes_per_token = 0;
  double static_bytes = 0;
  // Mean of |predicted / measured - 1| with the numbers in force and with
  // these; over the peaks that are no outliers of the latter.
  double error_before = 0;
  double error_after = 0;
  // The same of |ln(predicted / measured)|.
  double size_before = 0;
  double size_after = 0;
  int64_t most_rows = 0;  // of a rank whose peak was measured

  double Bytes(int64_t rows) const {
    return static_bytes + bytes_per_token * static_cast<double>(rows);
  }
  // Rows that take `bytes`, rounded down; at least 0.
  int64_t RowsIn(double bytes) const;
};

// The line through the peaks of ranks with outcome OK, near the numbers in
// force where they do not tell; bytes_per_token within kTotalFactor of the
// spec's, static_bytes within the device. nullopt where the job does not model
// memory (Epoch::models_memory), fewer than kLeastPeaks were measured, or the
// peaks do not follow their rows: half of them are off the line by more than
// kMostScatter. Of more than kMostPeaks the newest count.
std::optional<MemoryFit> FitMemory(const Job& spec_job, const Epoch& standing,
                                   std::span<const ReportedStep> steps);

// Twice as many as unknowns.
inline constexpr int64_t kLeastPeaks = 4;
inline constexpr double kMostScatter = 0.1;
// 20 rounds over so many take a few milliseconds.
inline constexpr int64_t kMostPeaks = 4096;

}  // namespace skrull::calibration

#endif  // SKRULL_SERVER_CALIBRATION_MEMORY_FIT_H_
