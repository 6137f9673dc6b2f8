// What was measured and how well it fits, as tables for a person.
#ifndef SKRULL_CUDA_PROFILE_REPORT_H_
#define SKRULL_CUDA_PROFILE_REPORT_H_

#include <span>
#include <string>

#include "skrull/cuda/profile/compute_measure.h"
#include "skrull/cuda/profile/fit.h"
#include "skrull/cuda/profile/link_measure.h"

namespace skrull::profile {

// A row a case: attention of one layer, forward and backward, in milliseconds
// and TFLOP/s (causal pairs only; a backward pass counts 2.5 forward passes),
// the spreads of both, and all layers and passes with linear layers.
std::string ComputeText(std::span<const ComputeTiming> timings);

// A row for each size and block: microseconds and GB/s of the gathered bytes.
std::string LinkText(std::span<const LinkTiming> timings);

// Coefficients with their standard errors; a row a point: measured, predicted,
// error; and the verdict.
std::string FitText(const LinearFit& fit);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_REPORT_H_
