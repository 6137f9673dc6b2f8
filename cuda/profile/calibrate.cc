#include "skrull/cuda/profile/calibrate.h"

#include <algorithm>

namespace skrull::profile {
namespace {

bool Exchanges(const MeasuredMicroBatch& mb) {
  return mb.exchange_seconds.value_or(0) > 0 &&
         std::ranges::any_of(mb.shares,
                             [](const Share& s) { return s.degree > 1; });
}

bool UsesMemory(const MeasuredMicroBatch& mb) {
  return !mb.shares.empty() && mb.peak_bytes.value_or(0) > 0;
}

}  // namespace

LinearFit FitCompute(const ModelShape& model, const CostForm& form,
                     std::span<const MeasuredMicroBatch> measured,
                     double max_mean_error) {
  std::vector<FitPoint> points;
  for (const MeasuredMicroBatch& mb : measured) {
    if (mb.shares.empty() || !(mb.compute_seconds.value_or(0) > 0)) continue;
    points.push_back({.label = mb.label,
                      .x = ComputeTerms(model, form, mb.shares),
                      .y = *mb.compute_seconds});
  }
  return Fit("computing",
             {{.name = "seconds_per_flop"},
              {.name = "seconds_per_flop * efficiency_half_tokens",
               .may_be_zero = true},
              {.name = "seconds_per_micro_batch", .may_be_zero = true}},
             points, max_mean_error);
}

void SetCompute(const LinearFit& fit, Coefficients* coefficients) {
  coefficients->seconds_per_flop = fit.value[kSecondsPerFlop];
  coefficients->efficiency_half_tokens =
      fit.value[kShortLoss] / fit.value[kSecondsPerFlop];
  coefficients->seconds_per_micro_batch = fit.value[kSecondsPerMicroBatch];
}

LinearFit FitExchange(const ModelShape& model, const CostForm& form,
                      std::span<const MeasuredMicroBatch> measured,
                      double max_mean_error) {
  std::vector<FitPoint> points;
  for (const MeasuredMicroBatch& mb : measured) {
    if (!Exchanges(mb)) continue;
    points.push_back({.label = mb.label,
                      .x = ExchangeTerms(model, form, mb.shares),
                      .y = *mb.exchange_seconds});
  }
  return Fit("exchange",
             {{.name = "seconds_per_collective", .may_be_zero = true},
              {.name = "seconds_per_byte"}},
             points, max_mean_error);
}

bool HasExchange(std::span<const MeasuredMicroBatch> measured) {
  return std::ranges::any_of(measured, Exchanges);
}

LinearFit FitMemory(std::span<const MeasuredMicroBatch> measured,
                    double max_mean_error) {
  std::vector<FitPoint> points;
  bool gathers = false;
  for (const MeasuredMicroBatch& mb : measured) {
    if (!UsesMemory(mb)) continue;
    FitPoint point = {.label = mb.label,
                      .y = static_cast<double>(*mb.peak_bytes)};
    for (const Share& share : mb.shares) {
      const auto tokens = static_cast<double>(share.tokens);
      point.x[kBytesPerToken] += tokens / share.degree;
      if (share.degree > 1) point.x[kGatherBytesPerToken] += tokens;
    }
    point.x[kStaticBytes] = 1;
    gathers = gathers || point.x[kGatherBytesPerToken] > 0;
    points.push_back(point);
  }
  std::vector<FitUnknown> unknowns = {
      {.name = "bytes_per_token"},
      {.name = "static_bytes", .may_be_zero = true}};
  if (gathers) {
    unknowns.push_back({.name = "gather_bytes_per_token", .may_be_zero = true});
  }
  return Fit("memory", unknowns, points, max_mean_error);
}

bool HasMemory(std::span<const MeasuredMicroBatch> measured) {
  return std::ranges::any_of(measured, UsesMemory);
}

double MemoryReserve(const LinearFit& fit) {
  double reserve = 0;
  for (const FitResidual& residual : fit.residuals) {
    reserve = std::max(reserve, 1 - residual.predicted / residual.measured);
  }
  return reserve;
}

}  // namespace skrull::profile
