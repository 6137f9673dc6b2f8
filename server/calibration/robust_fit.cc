#include "skrull/server/calibration/robust_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace skrull::calibration {
namespace {

// Weight of a belief against that of a measurement: the noise of measurements
// over that of beliefs, which is 100 %. At most this, that of a noise of 3 %,
// as larger errors say that the model is wrong and not the measurements.
constexpr double kMostBeliefWeight = 0.03;
// Huber's constant: errors beyond so many standard deviations count linearly.
// 95 % as efficient as least squares where all errors are normal.
constexpr double kHuber = 1.345;
// Rounds of reweighting: first by Huber's loss, which converges from anywhere
// as it is convex, but keeps a pull of outliers on one side; then without
// outliers, which removes it. Further rounds change less than a thousandth in
// tests with a tenth of outliers.
constexpr int kHuberRounds = 10;
constexpr int kRounds = 20;

double Sum(const Unknowns& x, const Unknowns& unknowns) {
  double sum = 0;
  for (size_t i = 0; i < kMaxUnknowns; ++i) sum += x[i] * unknowns[i];
  return sum;
}

// The least squares of `rows` within the bounds. Shifted by the lower bounds,
// unknowns are non-negative; those pinned to an upper bound leave the problem.
Unknowns BoundedLeastSquares(std::span<const Observation> rows,
                             const Belief& belief) {
  std::array<bool, kMaxUnknowns> pinned = {};
  for (;;) {
    std::vector<Observation> shifted(rows.begin(), rows.end());
    for (Observation& row : shifted) {
      for (size_t i = 0; i < kMaxUnknowns; ++i) {
        row.y -= row.x[i] * (pinned[i] ? belief.upper[i] : belief.lower[i]);
        if (pinned[i]) row.x[i] = 0;
      }
    }
    Unknowns value = NonNegativeLeastSquares(shifted).value;
    size_t furthest = kMaxUnknowns;
    double excess = 1;
    for (size_t i = 0; i < kMaxUnknowns; ++i) {
      value[i] = pinned[i] ? belief.upper[i] : belief.lower[i] + value[i];
      if (!pinned[i] && value[i] > excess * belief.upper[i]) {
        excess = belief.upper[i] > 0 ? value[i] / belief.upper[i] : excess;
        furthest = i;
      }
    }
    if (furthest == kMaxUnknowns) return value;
    pinned[furthest] = true;
  }
}

double ScaleOf(std::vector<double> sizes) {
  const auto middle =
      sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::nth_element(sizes.begin(), middle, sizes.end());
  return std::max(1.4826 * *middle, kLeastScale);
}

}  // namespace

double RelativeError(const Measurement& measurement, const Unknowns& unknowns) {
  return Sum(measurement.x, unknowns) / measurement.measured - 1;
}

double ErrorSize(const Measurement& measurement, const Unknowns& unknowns) {
  return std::abs(
      std::log(Sum(measurement.x, unknowns) / measurement.measured));
}

RobustResult RobustFit(std::span<const Measurement> measurements,
                       const Belief& belief) {
  std::vector<Observation> rows;
  for (const Measurement& m : measurements) {
    rows.push_back({.x = m.x, .y = m.measured});
  }
  for (size_t i = 0; i < kMaxUnknowns; ++i) {
    Observation row = {.y = belief.belief[i], .weight = kMostBeliefWeight};
    row.x[i] = 1;
    rows.push_back(row);
  }
  RobustResult result = {.value = belief.belief};
  std::vector<double> sizes(measurements.size());
  for (int round = 0; round <= kRounds; ++round) {
    if (round > 0) result.value = BoundedLeastSquares(rows, belief);
    for (size_t n = 0; n < measurements.size(); ++n) {
      sizes[n] = ErrorSize(measurements[n], result.value);
    }
    result.scale = ScaleOf(sizes);
    const double bound = kHuber * result.scale;
    for (size_t n = 0; n < measurements.size(); ++n) {
      // By what is predicted: by what was measured, a measurement of next to
      // nothing would outweigh all others.
      const double predicted = Sum(measurements[n].x, result.value);
      const double size = std::abs(measurements[n].measured / predicted - 1);
      double huber = size > bound ? std::sqrt(bound / size) : 1.0;
      if (round >= kHuberRounds && sizes[n] > kOutlier * result.scale)
        huber = 0;
      rows[n].weight = huber * measurements[n].weight / predicted;
    }
    for (size_t n = measurements.size(); n < rows.size(); ++n) {
      rows[n].weight = std::min(result.scale, kMostBeliefWeight);
    }
  }
  return result;
}

}  // namespace skrull::calibration
