// A job's spec with the numbers of a calibration epoch.
//
// Pure; safe from any thread.
#ifndef SKRULL_SERVER_CALIBRATION_APPLY_H_
#define SKRULL_SERVER_CALIBRATION_APPLY_H_

#include "skrull/v1/calibration.pb.h"
#include "skrull/v1/job.pb.h"

namespace skrull {

// `spec` with every number that `calibration` sets in the place of its own.
// link_scale multiplies the two constants of each link and the seconds of its
// table; an unset inter_node stays unset and so follows intra_node. A bucket
// that is set replaces a derived one. An epoch that sets nothing, as epoch 0,
// changes nothing, not even which fields are set. O(size of the spec).
v1::JobSpec ApplyCalibration(const v1::JobSpec& spec,
                             const v1::Calibration& calibration);

}  // namespace skrull

#endif  // SKRULL_SERVER_CALIBRATION_APPLY_H_
