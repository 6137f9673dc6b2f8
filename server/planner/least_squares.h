// Least squares with a few unknowns that must not be negative, small and exact.
// What fits coefficients to measurements: skrull-profile, and the daemon's
// calibration. Pure; depends on the standard library alone.
#ifndef SKRULL_SERVER_PLANNER_LEAST_SQUARES_H_
#define SKRULL_SERVER_PLANNER_LEAST_SQUARES_H_

#include <array>
#include <cstddef>
#include <span>

namespace skrull {

inline constexpr size_t kMaxUnknowns = 3;

using Unknowns = std::array<double, kMaxUnknowns>;

// y = sum of unknown[i] * x[i], times `weight`. Unused x are zero.
struct Observation {
  Unknowns x = {};
  double y = 0;
  double weight = 1;
};

struct LeastSquares {
  Unknowns value = {};
  // Standard errors of the unknowns that are not zero, from the residuals; 0
  // for those that are, infinite without an observation to spare.
  Unknowns standard_error = {};
};

// The unknowns >= 0 that make the sum of (weight * (y - sum))^2 least. Tries
// every set of unknowns that are zero, so the result is the optimum.
// Unknowns that no observation tells apart are zero. REQUIRES: observations is
// not empty.
LeastSquares NonNegativeLeastSquares(std::span<const Observation> observations);

// The share of column `column` (of the x, each times its weight) that no linear
// combination of the columns before it explains, as a ratio of squared sizes:
// 0 if it is such a combination, 1 if it is orthogonal to all of them. 0 also
// for a column of zeros. REQUIRES: column < kMaxUnknowns.
double IndependentShare(std::span<const Observation> observations,
                        size_t column);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_LEAST_SQUARES_H_
