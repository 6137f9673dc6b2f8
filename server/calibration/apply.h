// What a calibration epoch makes of a job's spec.
#ifndef SKRULL_SERVER_CALIBRATION_APPLY_H_
#define SKRULL_SERVER_CALIBRATION_APPLY_H_

#include "skrull/v1/calibration.pb.h"
#include "skrull/v1/job.pb.h"

namespace skrull {

// `spec` with the numbers that `calibration` has set in the place of its own.
// Pure; safe from any thread. An epoch that sets none changes nothing. Whether
// the result is valid is for JobFromProto to say.
v1::JobSpec ApplyCalibration(const v1::JobSpec& spec,
                             const v1::Calibration& calibration);

}  // namespace skrull

#endif  // SKRULL_SERVER_CALIBRATION_APPLY_H_
