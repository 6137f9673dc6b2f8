// Least squares of measured times or bytes, and whether the result may be used.
//
// Errors are relative: a point counts by (predicted / measured - 1)^2, for the
// planner compares plans by ratios, and a point of a microsecond says as much
// of a coefficient as one of a second.
#ifndef SKRULL_CUDA_PROFILE_FIT_H_
#define SKRULL_CUDA_PROFILE_FIT_H_

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "skrull/cuda/status.h"
#include "skrull/planner/least_squares.h"

namespace skrull::profile {

// A coefficient to be fitted, >= 0.
struct FitUnknown {
  std::string name = {};
  // May it be 0? If not, a fit in which it is not told from 0 is refused.
  bool may_be_zero = false;
};

// One measurement: y = sum of unknown[i] * x[i].
struct FitPoint {
  std::string label = {};
  Unknowns x = {};
  double y = 0;  // seconds, or bytes
};

struct FitResidual {
  std::string label = {};
  double measured = 0;
  double predicted = 0;

  double error() const { return predicted / measured - 1; }
};

struct LinearFit {
  std::vector<FitUnknown> unknowns = {};
  Unknowns value = {};
  Unknowns standard_error = {};
  std::vector<FitResidual> residuals = {};  // in the order of the points
  double mean_error = 0;                    // mean of |error()|
  double worst_error = 0;                   // largest |error()|
  // OK, or why the coefficients must not be used.
  exec::Status verdict = {};
};

// The largest mean error that Fit accepts by default. The policies of
// docs/benchmarks.md, "Model truth", were predicted with mean relative errors
// of 6 to 14 percent, and the policy predicted fastest was the fastest in 9 of
// 10 batches or more; nothing is known of how fits beyond that rank policies.
inline constexpr double kMaxMeanError = 0.15;

// Fits 1 to kMaxUnknowns unknowns. The verdict is INVALID_ARGUMENT, beginning
// with `what`, when
//  - there are fewer than twice as many points as unknowns: residuals would say
//    nothing;
//  - a point's y or x are no positive finite numbers (an x may be 0);
//  - the points do not tell an unknown from those before it, as where all
//    lengths are equal;
//  - an unknown that may not be zero is not told from zero: it is less than
//    twice its standard error, which is the case of 1 in 20 where the residuals
//    are normal and it is zero;
//  - mean_error is above `max_mean_error`.
// In the first three cases nothing is fitted. Pure.
LinearFit Fit(const std::string& what, std::vector<FitUnknown> unknowns,
              std::span<const FitPoint> points, double max_mean_error);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_FIT_H_
