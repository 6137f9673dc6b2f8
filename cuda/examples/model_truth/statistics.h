// Rank correlation.
#ifndef SKRULL_CUDA_EXAMPLES_MODEL_TRUTH_STATISTICS_H_
#define SKRULL_CUDA_EXAMPLES_MODEL_TRUTH_STATISTICS_H_

#include <vector>

namespace skrull::examples {

// Spearman's rank correlation; equal values share their mean rank. 0 if all of
// one list are equal. REQUIRES: a and b have one size >= 2.
double Spearman(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_MODEL_TRUTH_STATISTICS_H_
