#include "skrull/server/calibration/apply.h"

#include <catch2/catch.hpp>
#include <string>

#include "skrull/server/convert.h"

namespace skrull {
namespace {

v1::JobSpec Spec(const std::string& text) {
  return ParseJobSpecText(text).value();
}

TEST_CASE("ApplyCalibration: epoch 0 changes nothing",
          "[server][calibration]") {
  v1::Calibration registered;
  registered.set_cause(v1::CALIBRATION_CAUSE_REGISTERED);
  for (const char* text :
       {"", "model { hidden_size: 8 } cost { intra_node { } }"}) {
    CHECK(CanonicalBytes(ApplyCalibration(Spec(text), registered)) ==
          CanonicalBytes(Spec(text)));
  }
}

TEST_CASE("ApplyCalibration: each number takes the place of the spec's",
          "[server][calibration]") {
  v1::Calibration calibration;
  calibration.set_seconds_per_flop(2);
  calibration.set_seconds_per_micro_batch(3);
  calibration.set_bytes_per_token(4);
  calibration.set_static_bytes(5);
  calibration.set_bucket_size_tokens(6);
  calibration.set_out_of_memory_tokens(7);  // for people
  const char* const wanted =
      "memory { bucket_size_tokens: 6 static_bytes: 5 bytes_per_token: 4 } "
      "cost { seconds_per_flop: 2 seconds_per_micro_batch: 3 }";
  CHECK(CanonicalBytes(ApplyCalibration(Spec(""), calibration)) ==
        CanonicalBytes(Spec(wanted)));
  CHECK(CanonicalBytes(ApplyCalibration(
            Spec("memory { bucket_size_tokens: 9 static_bytes: 9 "
                 "bytes_per_token: 9 } "
                 "cost { seconds_per_flop: 9 seconds_per_micro_batch: 9 }"),
            calibration)) == CanonicalBytes(Spec(wanted)));
}

TEST_CASE(
    "ApplyCalibration: the scale holds for all that the spec says of "
    "both links",
    "[server][calibration]") {
  v1::Calibration calibration;
  calibration.set_link_scale(2);
  CHECK(
      CanonicalBytes(ApplyCalibration(
          Spec("cost { intra_node { seconds_per_collective: 1 "
               "seconds_per_byte: 2 } inter_node { table { bytes: 4 "
               "seconds: 3 } table { bytes: 8 seconds: 5 } } }"),
          calibration)) ==
      CanonicalBytes(Spec("cost { intra_node { seconds_per_collective: 2 "
                          "seconds_per_byte: 4 } inter_node { table { bytes: 4 "
                          "seconds: 6 } table { bytes: 8 seconds: 10 } } }")));
  // Unset, inter_node follows intra_node; a free link stays free.
  CHECK(
      CanonicalBytes(ApplyCalibration(
          Spec("cost { intra_node { seconds_per_byte: 1 } }"), calibration)) ==
      CanonicalBytes(Spec("cost { intra_node { seconds_per_byte: 2 } }")));
  CHECK(CanonicalBytes(ApplyCalibration(Spec(""), calibration)).empty());
}

}  // namespace
}  // namespace skrull
