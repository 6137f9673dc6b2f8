#include "skrull/server/calibration/apply.h"

namespace skrull {
namespace {

void ScaleLink(double factor, v1::LinkCost* link) {
  if (link->has_seconds_per_collective()) {
    link->set_seconds_per_collective(factor * link->seconds_per_collective());
  }
  if (link->has_seconds_per_byte()) {
    link->set_seconds_per_byte(factor * link->seconds_per_byte());
  }
  for (v1::LinkTablePoint& point : *link->mutable_table()) {
    point.set_seconds(factor * point.seconds());
  }
}

void ApplyToCost(const v1::Calibration& calibration, v1::CostSpec* cost) {
  if (calibration.has_seconds_per_flop()) {
    cost->set_seconds_per_flop(calibration.seconds_per_flop());
  }
  if (calibration.has_seconds_per_micro_batch()) {
    cost->set_seconds_per_micro_batch(calibration.seconds_per_micro_batch());
  }
  if (!calibration.has_link_scale()) return;
  if (cost->has_intra_node()) {
    ScaleLink(calibration.link_scale(), cost->mutable_intra_node());
  }
  if (cost->has_inter_node()) {
    ScaleLink(calibration.link_scale(), cost->mutable_inter_node());
  }
}

void ApplyToMemory(const v1::Calibration& calibration, v1::MemorySpec* memory) {
  if (calibration.has_bytes_per_token()) {
    memory->set_bytes_per_token(calibration.bytes_per_token());
  }
  if (calibration.has_static_bytes()) {
    memory->set_static_bytes(calibration.static_bytes());
  }
  if (calibration.has_bucket_size_tokens()) {
    memory->set_bucket_size_tokens(calibration.bucket_size_tokens());
  }
}

}  // namespace

v1::JobSpec ApplyCalibration(const v1::JobSpec& spec,
                             const v1::Calibration& calibration) {
  v1::JobSpec applied = spec;
  if (calibration.has_seconds_per_flop() ||
      calibration.has_seconds_per_micro_batch() ||
      (calibration.has_link_scale() && spec.has_cost())) {
    ApplyToCost(calibration, applied.mutable_cost());
  }
  if (calibration.has_bytes_per_token() || calibration.has_static_bytes() ||
      calibration.has_bucket_size_tokens()) {
    ApplyToMemory(calibration, applied.mutable_memory());
  }
  return applied;
}

}  // namespace skrull
