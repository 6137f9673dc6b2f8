// A job's calibration epochs for people and programs.
#ifndef SKRULL_CLIENT_CLI_CALIBRATIONS_H_
#define SKRULL_CLIENT_CLI_CALIBRATIONS_H_

#include <string>
#include <utility>
#include <vector>

#include "skrull/client/plan_types.h"

namespace skrull::cli {

// The numbers that the epoch changed, by their paths in skrull.v1.JobSpec
// ("link_scale" is the factor on both links), in that order.
std::vector<std::pair<std::string, std::string>> CalibratedNumbers(
    const CalibrationInfo& epoch);

// A table, a line an epoch; "-" is the spec's number, or nothing measured.
std::string CalibrationsText(const std::vector<CalibrationInfo>& epochs);

// One JSON object a line, with the names of skrull.v1.Calibration; what the
// epoch leaves as it is in the spec is left out.
std::string CalibrationsJson(const std::vector<CalibrationInfo>& epochs);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_CALIBRATIONS_H_
