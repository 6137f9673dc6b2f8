#include "skrull/cuda/profile/fit.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace skrull::profile {
namespace {

using exec::InvalidArgument;
using exec::Status;

// Squared, so a millionth of a column's size: NonNegativeLeastSquares takes
// columns for dependent below the same. Terms are exact to 1e-15 or so, hence
// what is above it is no rounding, and shows in the standard errors.
constexpr double kDependentShare = 1e-12;

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%", 100 * share);
  return text;
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

std::string Names(std::span<const FitUnknown> unknowns) {
  std::string names;
  for (const FitUnknown& unknown : unknowns) {
    names += (names.empty() ? "" : ", ") + unknown.name;
  }
  return names;
}

Status CheckPoint(const FitPoint& point) {
  if (!(point.y > 0) || !std::isfinite(point.y)) {
    return InvalidArgument(point.label + " measured " + Number(point.y));
  }
  for (const double x : point.x) {
    if (!(x >= 0) || !std::isfinite(x)) {
      return InvalidArgument(point.label + " has a term of " + Number(x));
    }
  }
  return {};
}

// Can these points say anything of the unknowns?
Status CheckDesign(std::span<const FitUnknown> unknowns,
                   std::span<const FitPoint> points,
                   std::span<const Observation> observations) {
  const size_t least = 2 * unknowns.size();
  if (points.size() < least) {
    return InvalidArgument(std::to_string(points.size()) + " points for " +
                           std::to_string(unknowns.size()) +
                           " coefficients, where " + std::to_string(least) +
                           " are needed");
  }
  for (const FitPoint& point : points) {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckPoint(point));
  }
  for (size_t i = 0; i < unknowns.size(); ++i) {
    if (IndependentShare(observations, i) > kDependentShare) continue;
    return InvalidArgument(
        unknowns[i].name +
        (i == 0 ? std::string(" has no part in any point")
                : " cannot be told from " + Names(unknowns.first(i)) +
                      ": the points differ too little, as where all lengths "
                      "are equal"));
  }
  return {};
}

Status Judge(const LinearFit& fit, double max_mean_error) {
  for (size_t i = 0; i < fit.unknowns.size(); ++i) {
    const FitUnknown& unknown = fit.unknowns[i];
    if (unknown.may_be_zero) continue;
    if (!(fit.value[i] > 0)) {
      return InvalidArgument(unknown.name +
                             " would not be positive: the times do not grow "
                             "with what it multiplies");
    }
    if (!(fit.value[i] >= 2 * fit.standard_error[i])) {
      return InvalidArgument(
          unknown.name + " is not told from zero: " + Number(fit.value[i]) +
          " with a standard error of " + Number(fit.standard_error[i]));
    }
  }
  if (!(fit.mean_error <= max_mean_error)) {
    const auto worst = std::ranges::max_element(
        fit.residuals, {},
        [](const FitResidual& r) { return std::abs(r.error()); });
    return InvalidArgument("the mean error is " + Percent(fit.mean_error) +
                           ", above " + Percent(max_mean_error) +
                           "; worst is " + worst->label + ", " +
                           Percent(worst->error()));
  }
  return {};
}

void AddResiduals(std::span<const FitPoint> points, LinearFit* fit) {
  for (const FitPoint& point : points) {
    double predicted = 0;
    for (size_t i = 0; i < kMaxUnknowns; ++i) {
      predicted += fit->value[i] * point.x[i];
    }
    const FitResidual residual = {
        .label = point.label, .measured = point.y, .predicted = predicted};
    fit->mean_error +=
        std::abs(residual.error()) / static_cast<double>(points.size());
    fit->worst_error = std::max(fit->worst_error, std::abs(residual.error()));
    fit->residuals.push_back(residual);
  }
}

}  // namespace

LinearFit Fit(const std::string& what, std::vector<FitUnknown> unknowns,
              std::span<const FitPoint> points, double max_mean_error) {
  LinearFit fit;
  fit.unknowns = std::move(unknowns);
  std::vector<Observation> observations;
  for (const FitPoint& point : points) {
    observations.push_back({.x = point.x, .y = point.y, .weight = 1 / point.y});
  }
  Status verdict = CheckDesign(fit.unknowns, points, observations);
  if (verdict.ok()) {
    const LeastSquares found = NonNegativeLeastSquares(observations);
    fit.value = found.value;
    fit.standard_error = found.standard_error;
    AddResiduals(points, &fit);
    verdict = Judge(fit, max_mean_error);
  }
  if (!verdict.ok()) {
    fit.verdict = Status(verdict.code(), what + ": " + verdict.message());
  }
  return fit;
}

}  // namespace skrull::profile
