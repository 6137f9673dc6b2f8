// Rules of how large a job's bucket may be, by what its ranks ran and where
// they ran out of memory.
//
// Pure; safe from any thread.
#ifndef SKRULL_SERVER_CALIBRATION_BUCKET_H_
#define SKRULL_SERVER_CALIBRATION_BUCKET_H_

#include <cstdint>
#include <optional>

#include "skrull/server/calibration/memory_fit.h"

namespace skrull::calibration {

// What there is to decide by. Counts are of tokens, >= 1.
struct BucketEvidence {
  int64_t spec_bucket = 1;
  int64_t bucket = 1;  // in force
  // Fewest rows that a rank ran out of memory with, if one did.
  std::optional<int64_t> out_of_memory_rows = {};
  // The line through measured peaks, if there is one, and what of the device it
  // may fill (FittedByteLimit).
  std::optional<MemoryFit> fit = {};
  double fitted_bytes = 0;
  // Ranks measure their memory, so that a fit is to be expected soon.
  bool measures_memory = false;
  // Complete steps of the epoch in force whose fullest rank held at least
  // kNearBucket of the bucket.
  int64_t full_steps = 0;
};

// Share of the bucket above which a load says that such a bucket fits.
inline constexpr double kNearBucket = 0.75;

// The bucket after a rank ran out of memory with `rows` rows: below `rows`, and
// at least BucketFloor of the spec's; nullopt if there is no such number.
//  - With a fit that says that `rows` do not fit: what it says does, and at
//  most
//    0.9 * rows.
//  - With one that says they do: 0.75 * rows. Something else took memory.
//  - Without, where ranks measure their memory: rows / 8. One step with small
//    micro-batches costs less than to run out of memory again, and after it
//    there is a fit to grow by.
//  - Without, and no measurements: rows / 2.
std::optional<int64_t> BucketAfterOutOfMemory(const BucketEvidence& evidence,
                                              int64_t rows);

// The bucket that a fit says does fit, and at least BucketFloor, if that is
// smaller than the one in force by 3 %: less is noise. Else nullopt.
std::optional<int64_t> BucketByPrediction(const BucketEvidence& evidence);

// A larger bucket, on evidence that it fits; never above the spec's, nor above
// 0.95 of the rows that a rank ran out of memory with (0.9 without a fit).
// nullopt without evidence, or if it would not be larger by 5 %.
//  - With a fit from loads of kNearBucket of the bucket or more: what it says
//    does fit, at most 1.5 times the bucket: the noise of peaks tilts a line,
//    and at twice the loads it is of, 7 of 720 simulated jobs ran out of memory
//    again; at 1.5 times, none.
//  - Where ranks do not measure memory: a ninth eighth of the bucket after 24
//    full steps.
std::optional<int64_t> RecoveredBucket(const BucketEvidence& evidence);

}  // namespace skrull::calibration

#endif  // SKRULL_SERVER_CALIBRATION_BUCKET_H_
