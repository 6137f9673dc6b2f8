// Least squares and rank correlation, small and exact.
#ifndef SKRULL_CUDA_EXAMPLES_MODEL_TRUTH_STATISTICS_H_
#define SKRULL_CUDA_EXAMPLES_MODEL_TRUTH_STATISTICS_H_

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace skrull::examples {

inline constexpr size_t kMaxUnknowns = 3;

// y = sum of unknown[i] * x[i], times `weight`. Unused x are zero.
struct Observation {
  std::array<double, kMaxUnknowns> x = {};
  double y = 0;
  double weight = 1;
};

// The unknowns >= 0 that make the sum of (weight * (y - sum))^2 least. Tries
// every set of unknowns that are zero, so the result is the optimum.
// Unknowns that no observation tells apart are zero. REQUIRES: observations is
// not empty.
std::array<double, kMaxUnknowns> NonNegativeLeastSquares(
    std::span<const Observation> observations);

// Spearman's rank correlation; equal values share their mean rank. 0 if all of
// one list are equal. REQUIRES: a and b have one size >= 2.
double Spearman(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_MODEL_TRUTH_STATISTICS_H_
