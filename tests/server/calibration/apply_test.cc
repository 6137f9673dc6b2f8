// A spec with the numbers of an epoch.
#include "skrull/server/calibration/apply.h"

#include <catch2/catch.hpp>

#include "skrull/server/convert.h"

namespace skrull {
namespace {

v1::JobSpec FullSpec() {
  const auto spec = ParseJobSpecText(R"(
    model { hidden_size: 8 layer_count: 2 attention_head_count: 2 }
    memory { device_bytes: 1000 bytes_per_token: 2 }
    cost {
      seconds_per_flop: 3
      intra_node { seconds_per_collective: 4 seconds_per_byte: 5 }
      inter_node { table { bytes: 1 seconds: 6 } table { bytes: 2 seconds: 7 } }
    })");
  return *spec;
}

TEST_CASE("ApplyCalibration: an epoch without numbers changes no byte",
          "[calibration]") {
  v1::Calibration first;
  first.set_cause(v1::CALIBRATION_CAUSE_REGISTERED);
  for (const v1::JobSpec& spec : {FullSpec(), v1::JobSpec()}) {
    CHECK(CanonicalBytes(ApplyCalibration(spec, first)) ==
          CanonicalBytes(spec));
  }
}

TEST_CASE("ApplyCalibration: every number takes the place of the spec's",
          "[calibration]") {
  v1::Calibration record;
  record.set_seconds_per_flop(30);
  record.set_seconds_per_micro_batch(31);
  record.set_link_scale(10);
  record.set_bytes_per_token(32);
  record.set_static_bytes(33);
  record.set_bucket_size_tokens(34);
  const v1::JobSpec spec = ApplyCalibration(FullSpec(), record);
  CHECK(spec.cost().seconds_per_flop() == 30);
  CHECK(spec.cost().seconds_per_micro_batch() == 31);
  CHECK(spec.cost().intra_node().seconds_per_collective() == 40);
  CHECK(spec.cost().intra_node().seconds_per_byte() == 50);
  CHECK(spec.cost().inter_node().table(0).seconds() == 60);
  CHECK(spec.cost().inter_node().table(1).seconds() == 70);
  CHECK(spec.cost().inter_node().table(1).bytes() == 2);
  CHECK(spec.memory().bytes_per_token() == 32);
  CHECK(spec.memory().static_bytes() == 33);
  CHECK(spec.memory().bucket_size_tokens() == 34);
  CHECK(spec.memory().device_bytes() == 1000);
}

TEST_CASE("ApplyCalibration: an unset inter_node follows intra_node",
          "[calibration]") {
  v1::JobSpec spec = FullSpec();
  spec.mutable_cost()->clear_inter_node();
  v1::Calibration record;
  record.set_link_scale(10);
  const v1::JobSpec applied = ApplyCalibration(spec, record);
  CHECK_FALSE(applied.cost().has_inter_node());
  const absl::StatusOr<Job> job = JobFromProto(applied);
  REQUIRE(job.ok());
  CHECK(job->inter_node().seconds_per_byte == 50);
}

}  // namespace
}  // namespace skrull
