// Least squares that a few wrong measurements cannot mislead, within bounds and
// near a belief.
//
// Errors are relative, as the planner compares plans by ratios: the size of one
// is |ln(predicted / measured)|, so that half and double are equally wrong, and
// no single measurement counts for more than one whatever it is. Pure; safe
// from any thread.
#ifndef SKRULL_SERVER_CALIBRATION_ROBUST_FIT_H_
#define SKRULL_SERVER_CALIBRATION_ROBUST_FIT_H_

#include <span>

#include "skrull/planner/least_squares.h"

namespace skrull::calibration {

// measured = sum of unknown[i] * x[i]. REQUIRES: measured > 0; all finite.
struct Measurement {
  Unknowns x = {};
  double measured = 0;
  double weight = 1;  // of its relative error
};

// What is believed of the unknowns before, and where they must stay. Their
// units are such that a belief that is off by 1 is very wrong. REQUIRES: 0 <=
// lower[i] <= belief[i] <= upper[i], finite; every measurement's sum is above 0
// with the lower bounds.
struct Belief {
  Unknowns belief = {};
  Unknowns lower = {};
  Unknowns upper = {};
};

struct RobustResult {
  Unknowns value = {};
  // 1.4826 * the median size of the errors: the standard deviation
  // of the honest ones if they are normal. At least kLeastScale.
  double scale = 0;
};

// Measurements closer than this, relative, are one and the same.
inline constexpr double kLeastScale = 0.005;
// A measurement is an outlier if its error is beyond so many times the scale:
// of normal errors 1 in 16,000 is.
inline constexpr double kOutlier = 4;

// The unknowns that make Huber's loss of the relative errors least, then the
// squares of those errors without outliers; by iteratively reweighted least
// squares with a fixed number of rounds. Beliefs
// count as measurements: an unknown that no measurement tells stays where it
// was believed. Where the optimum lies above an upper bound, the unknown that
// is furthest above it is set to the bound and the others are fitted anew. The
// result depends on the order of `measurements` only in its last bits.
// REQUIRES: measurements is not empty. O(measurements).
RobustResult RobustFit(std::span<const Measurement> measurements,
                       const Belief& belief);

// predicted / measured - 1 with these unknowns.
double RelativeError(const Measurement& measurement, const Unknowns& unknowns);

// |ln(predicted / measured)| with these unknowns.
double ErrorSize(const Measurement& measurement, const Unknowns& unknowns);

}  // namespace skrull::calibration

#endif  // SKRULL_SERVER_CALIBRATION_ROBUST_FIT_H_
