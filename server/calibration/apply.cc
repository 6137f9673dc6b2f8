#include "skrull/server/calibration/apply.h"

namespace skrull {
namespace {

// Unset constants are 0 and stay so.
void ScaleLink(double scale, v1::LinkCost* link) {
  if (link->has_seconds_per_collective()) {
    link->set_seconds_per_collective(link->seconds_per_collective() * scale);
  }
  if (link->has_seconds_per_byte()) {
    link->set_seconds_per_byte(link->seconds_per_byte() * scale);
  }
  for (v1::LinkTablePoint& point : *link->mutable_table()) {
    point.set_seconds(point.seconds() * scale);
  }
}

}  // namespace

v1::JobSpec ApplyCalibration(const v1::JobSpec& spec,
                             const v1::Calibration& calibration) {
  v1::JobSpec out = spec;
  if (calibration.has_seconds_per_flop()) {
    out.mutable_cost()->set_seconds_per_flop(calibration.seconds_per_flop());
  }
  if (calibration.has_seconds_per_micro_batch()) {
    out.mutable_cost()->set_seconds_per_micro_batch(
        calibration.seconds_per_micro_batch());
  }
  if (calibration.has_link_scale() && out.has_cost()) {
    v1::CostSpec* const cost = out.mutable_cost();
    const double scale = calibration.link_scale();
    if (cost->has_intra_node()) ScaleLink(scale, cost->mutable_intra_node());
    // Unset, it equals intra_node, scaled as that is.
    if (cost->has_inter_node()) ScaleLink(scale, cost->mutable_inter_node());
  }
  if (calibration.has_bytes_per_token()) {
    out.mutable_memory()->set_bytes_per_token(calibration.bytes_per_token());
  }
  if (calibration.has_static_bytes()) {
    out.mutable_memory()->set_static_bytes(calibration.static_bytes());
  }
  if (calibration.has_bucket_size_tokens()) {
    out.mutable_memory()->set_bucket_size_tokens(
        calibration.bucket_size_tokens());
  }
  return out;
}

}  // namespace skrull
