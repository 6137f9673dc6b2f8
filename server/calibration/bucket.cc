#include "skrull/server/calibration/bucket.h"

#include <algorithm>
#include <cmath>

#include "skrull/server/calibration/numbers.h"

namespace skrull::calibration {
namespace {

// Steps without trouble that stand for measured peaks: three quarters of the
// window of a refit.
constexpr int64_t kFullSteps = 24;

// Cuts are of tokens far below 2^53.
int64_t Share(double share, int64_t tokens) {
  return static_cast<int64_t>(std::floor(share * static_cast<double>(tokens)));
}

}  // namespace

std::optional<int64_t> BucketAfterOutOfMemory(const BucketEvidence& evidence,
                                              int64_t rows) {
  const int64_t floor = BucketFloor(evidence.spec_bucket);
  if (floor >= rows) return std::nullopt;
  int64_t bucket = 0;
  if (evidence.fit) {
    const int64_t fits = evidence.fit->RowsIn(evidence.fitted_bytes);
    bucket = fits < rows ? std::min(fits, Share(0.9, rows)) : Share(0.75, rows);
  } else {
    bucket = rows / (evidence.measures_memory ? 8 : 2);
  }
  return std::clamp(bucket, floor, rows - 1);
}

std::optional<int64_t> BucketByPrediction(const BucketEvidence& evidence) {
  if (!evidence.fit) return std::nullopt;
  const int64_t bucket = std::max(evidence.fit->RowsIn(evidence.fitted_bytes),
                                  BucketFloor(evidence.spec_bucket));
  if (bucket >= Share(0.97, evidence.bucket)) return std::nullopt;
  return bucket;
}

std::optional<int64_t> RecoveredBucket(const BucketEvidence& evidence) {
  int64_t bucket = evidence.spec_bucket;
  if (evidence.out_of_memory_rows) {
    const double below = evidence.fit ? 0.95 : 0.9;
    bucket = std::min(bucket, Share(below, *evidence.out_of_memory_rows));
  }
  if (evidence.fit) {
    if (evidence.fit->most_rows < Share(kNearBucket, evidence.bucket)) {
      return std::nullopt;
    }
    bucket = std::min({bucket, evidence.bucket + evidence.bucket / 2,
                       evidence.fit->RowsIn(evidence.fitted_bytes)});
  } else {
    if (evidence.measures_memory || evidence.full_steps < kFullSteps) {
      return std::nullopt;
    }
    bucket = std::min(bucket, evidence.bucket + (evidence.bucket + 7) / 8);
  }
  if (bucket <= Share(1.05, evidence.bucket)) return std::nullopt;
  return bucket;
}

}  // namespace skrull::calibration
