#include "skrull/server/calibration/memory_fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "skrull/server/calibration/limits.h"
#include "skrull/server/calibration/robust_fit.h"
#include "skrull/server/calibration/step_parts.h"

namespace skrull::calibration {
namespace {

enum MemoryUnknown : size_t { kRows = 0, kStatic = 1 };

// A static_bytes that is wrong by a tenth of the device is as bad a belief as a
// bytes_per_token that is wrong by 100 %: weights and optimizer states are
// counted exactly, activations by rules of thumb.
constexpr double kStaticUnit = 0.1;

// By rows in units of bytes_per_token in force and of the device's bytes.
struct Units {
  double bytes_per_token;
  double static_bytes;
};

Measurement MakeMeasurement(const Units& units, int64_t rows, double bytes) {
  Measurement m = {.measured = bytes};
  m.x[kRows] = units.bytes_per_token * static_cast<double>(rows);
  m.x[kStatic] = units.static_bytes;
  return m;
}

// Newest steps first; the most rows of them.
std::vector<Measurement> PeaksOf(const Job& job, const Units& units,
                                 std::span<const ReportedStep> steps,
                                 int64_t* most_rows) {
  std::vector<Measurement> peaks;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (std::ssize(peaks) >= kMostPeaks) break;
    // Chunks hold gathered keys and values that PeakLoadsOf does not count.
    if (step->plan.chunk_plan && job.models_gather()) continue;
    const std::vector<PeakLoad> loads = PeakLoadsOf(job, step->plan);
    for (const v1::StepReport& report : step->reports) {
      const auto r = static_cast<size_t>(report.rank());
      if (report.outcome() != v1::STEP_OUTCOME_OK || r >= loads.size() ||
          loads[r].rows == 0) {
        continue;
      }
      const double bytes =
          static_cast<double>(report.peak_bytes()) -
          static_cast<double>(loads[r].gathered) * job.gather_bytes_per_token();
      if (bytes <= 0) continue;
      peaks.push_back(MakeMeasurement(units, loads[r].rows, bytes));
      *most_rows = std::max(*most_rows, loads[r].rows);
    }
  }
  return peaks;
}

Belief BeliefOf(const Job& spec_job, const Epoch& standing,
                const Units& units) {
  const double in_force = standing.job.bytes_per_token();
  const double of_spec = spec_job.bytes_per_token();
  const auto static_in_force =
      static_cast<double>(standing.job.spec().memory.static_bytes);
  Belief belief;
  belief.belief = {1, static_in_force / units.static_bytes, 0};
  belief.lower = {std::min(1.0, of_spec / kTotalFactor / in_force), 0, 0};
  belief.upper = {std::max(1.0, of_spec * kTotalFactor / in_force),
                  std::max(1 / kStaticUnit, belief.belief[kStatic]), 0};
  return belief;
}

void SetErrors(std::span<const Measurement> peaks, const Belief& belief,
               const RobustResult& result, MemoryFit* fit) {
  double count = 0;
  for (const Measurement& peak : peaks) {
    if (ErrorSize(peak, result.value) > kOutlier * result.scale) continue;
    count += 1;
    fit->error_before += std::abs(RelativeError(peak, belief.belief));
    fit->error_after += std::abs(RelativeError(peak, result.value));
    fit->size_before += ErrorSize(peak, belief.belief);
    fit->size_after += ErrorSize(peak, result.value);
  }
  fit->error_before /= count;
  fit->error_after /= count;
  fit->size_before /= count;
  fit->size_after /= count;
}

}  // namespace

int64_t MemoryFit::RowsIn(double bytes) const {
  const double rows = std::floor((bytes - static_bytes) / bytes_per_token);
  return static_cast<int64_t>(std::clamp(rows, 0.0, 0x1p31));
}

std::optional<MemoryFit> FitMemory(const Job& spec_job, const Epoch& standing,
                                   std::span<const ReportedStep> steps) {
  if (!standing.models_memory()) return std::nullopt;
  const auto device =
      static_cast<double>(*standing.job.spec().memory.device_bytes);
  const Units units = {.bytes_per_token = standing.job.bytes_per_token(),
                       .static_bytes = kStaticUnit * device};
  MemoryFit fit;
  const std::vector<Measurement> peaks =
      PeaksOf(standing.job, units, steps, &fit.most_rows);
  if (std::ssize(peaks) < kLeastPeaks) return std::nullopt;
  const Belief belief = BeliefOf(spec_job, standing, units);
  const RobustResult result = RobustFit(peaks, belief);
  if (result.scale > 1.4826 * kMostScatter) return std::nullopt;
  SetErrors(peaks, belief, result, &fit);
  fit.bytes_per_token = result.value[kRows] * units.bytes_per_token;
  fit.static_bytes = result.value[kStatic] * units.static_bytes;
  return fit;
}

}  // namespace skrull::calibration
