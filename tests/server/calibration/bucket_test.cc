// The rules of how large a bucket may be.
#include "skrull/server/calibration/bucket.h"

#include <catch2/catch.hpp>

namespace skrull::calibration {
namespace {

// 1 byte a token over 100; a device of 1000 of which 950 may be filled.
MemoryFit UnitFit(int64_t most_rows) {
  return {.bytes_per_token = 1, .static_bytes = 100, .most_rows = most_rows};
}

BucketEvidence Evidence() {
  return {.spec_bucket = 8000, .bucket = 8000, .fitted_bytes = 950};
}

TEST_CASE("Bucket: after an out-of-memory, by what is known", "[calibration]") {
  BucketEvidence evidence = Evidence();
  CHECK(BucketAfterOutOfMemory(evidence, 6000) == 3000);
  evidence.measures_memory = true;
  CHECK(BucketAfterOutOfMemory(evidence, 8000) == 1000);
  evidence.fit = UnitFit(500);
  evidence.fitted_bytes = 4100;  // 4000 rows fit
  CHECK(BucketAfterOutOfMemory(evidence, 6000) == 4000);
  CHECK(BucketAfterOutOfMemory(evidence, 4100) == 3690);  // 0.9 of the rows
  CHECK(BucketAfterOutOfMemory(evidence, 3000) == 2250);  // the line is wrong
}

TEST_CASE("Bucket: is always below the rows and never below the floor",
          "[calibration]") {
  for (int64_t spec = 1; spec < 40; ++spec) {
    for (int64_t rows = 0; rows <= spec; ++rows) {
      for (const bool measures : {false, true}) {
        for (const bool fitted : {false, true}) {
          BucketEvidence evidence = {.spec_bucket = spec,
                                     .bucket = spec,
                                     .fitted_bytes = 130,
                                     .measures_memory = measures};
          if (fitted) evidence.fit = UnitFit(20);
          const auto bucket = BucketAfterOutOfMemory(evidence, rows);
          const int64_t floor = BucketFloor(spec);
          CAPTURE(spec, rows, measures, fitted, floor);
          CHECK(floor >= 1);
          CHECK(8 * floor >= spec);
          CHECK(bucket.has_value() == (rows > floor));
          if (!bucket) continue;
          CHECK(*bucket < rows);
          CHECK(*bucket >= floor);
        }
      }
    }
  }
}

TEST_CASE("Bucket: a prediction lowers it by 3 % or more", "[calibration]") {
  BucketEvidence evidence = Evidence();
  CHECK(BucketByPrediction(evidence) == std::nullopt);
  evidence.fit = UnitFit(500);
  evidence.fitted_bytes = 7100;
  CHECK(BucketByPrediction(evidence) == 7000);
  evidence.fitted_bytes = 7900;  // 7800 of 8000
  CHECK(BucketByPrediction(evidence) == std::nullopt);
  evidence.fitted_bytes = 0;
  CHECK(BucketByPrediction(evidence) == 1000);
}

TEST_CASE("Bucket: recovers by measured peaks", "[calibration]") {
  BucketEvidence evidence = Evidence();
  evidence.bucket = 1000;
  evidence.fitted_bytes = 9000;
  CHECK(RecoveredBucket(evidence) == std::nullopt);
  evidence.fit = UnitFit(749);
  CHECK(RecoveredBucket(evidence) == std::nullopt);  // no load near the bucket
  evidence.fit = UnitFit(750);
  CHECK(RecoveredBucket(evidence) == 1500);
  evidence.fitted_bytes = 1300;
  CHECK(RecoveredBucket(evidence) == 1200);  // what fits
  evidence.fitted_bytes = 1150;
  CHECK(RecoveredBucket(evidence) == std::nullopt);  // by 5 %
  evidence.fitted_bytes = 9000;
  evidence.out_of_memory_rows = 1400;
  CHECK(RecoveredBucket(evidence) == 1330);  // 0.95 of the rows
  evidence.out_of_memory_rows = std::nullopt;
  evidence.bucket = 7000;
  evidence.fit = UnitFit(7000);
  CHECK(RecoveredBucket(evidence) == 8000);  // the spec's
  evidence.bucket = 8000;
  CHECK(RecoveredBucket(evidence) == std::nullopt);
}

TEST_CASE("Bucket: recovers by many full steps where nobody measures peaks",
          "[calibration]") {
  BucketEvidence evidence = Evidence();
  evidence.bucket = 4000;
  evidence.out_of_memory_rows = 7000;
  evidence.full_steps = 23;
  CHECK(RecoveredBucket(evidence) == std::nullopt);
  evidence.full_steps = 24;
  CHECK(RecoveredBucket(evidence) == 4500);
  evidence.bucket = 5900;
  CHECK(RecoveredBucket(evidence) == 6300);  // 0.9 of the rows
  evidence.measures_memory = true;           // wait for a fit
  CHECK(RecoveredBucket(evidence) == std::nullopt);
}

TEST_CASE("Bucket: rows that bytes hold", "[calibration]") {
  const MemoryFit fit = UnitFit(1);
  CHECK(fit.RowsIn(950) == 850);
  CHECK(fit.RowsIn(950.9) == 850);
  CHECK(fit.RowsIn(100) == 0);
  CHECK(fit.RowsIn(-1e300) == 0);
  CHECK(fit.RowsIn(1e300) == int64_t{1} << 31);
  CHECK(fit.Bytes(850) == 950);
}

}  // namespace
}  // namespace skrull::calibration
