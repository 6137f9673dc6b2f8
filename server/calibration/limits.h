// How far, how fast and on how much evidence calibration may move a job's
// numbers. docs/calibration.md states them for users.
#ifndef SKRULL_SERVER_CALIBRATION_LIMITS_H_
#define SKRULL_SERVER_CALIBRATION_LIMITS_H_

#include <cstdint>

namespace skrull::calibration {

// A refit looks at this many of the steps committed last. Of measurements with
// 3 % noise, whose mean absolute error is 2.4 %, the mean over 32 is known to
// 0.3 percentage points.
inline constexpr int64_t kWindowSteps = 32;
// A refit may begin at steps that are multiples of this, when so many complete
// steps followed the epoch in force: more than twice as many as the three
// unknowns of the times, so that residuals say something.
inline constexpr int64_t kEpochSteps = 8;

// A number moves by at most this factor in one epoch, and is never further
// from the spec's than this one. Specs by rule of thumb are off by 2 to 5:
// two epochs reach that, and no reports, true or false, do more than the
// second.
inline constexpr double kEpochFactor = 4;
inline constexpr double kTotalFactor = 32;
// What both factors apply to where the spec's seconds_per_micro_batch is less:
// the launches of one micro-batch cost about a millisecond, and a factor on 0
// would say nothing.
inline constexpr double kLeastOverheadSeconds = 1e-3;

// A new epoch must lower the mean size of errors, |ln(predicted / measured)|,
// by this, absolutely, and by this share of what it was. Both means are of the
// same steps, so that their noise cancels but for what three more unknowns fit
// of it: 3/32 of its square, 5 % of its size. In
// tests/server/calibration/convergence_test.cc, smaller gains start epochs
// without end, and twice these leave 4 of 720 jobs above 5 %.
inline constexpr double kLeastGain = 0.005;
inline constexpr double kLeastGainShare = 0.15;

// Smallest bucket, as a share of the spec's. Reports that lie cost a job no
// more than micro-batches of this size.
inline constexpr int64_t kBucketFloorShare = 8;
// Part of the device that fitted memory leaves free, unless the spec reserves
// more: allocators lose some to fragmentation, and peaks differ by 2 % or so
// from step to step.
inline constexpr double kMemoryMargin = 0.05;

}  // namespace skrull::calibration

#endif  // SKRULL_SERVER_CALIBRATION_LIMITS_H_
