// A committed plan with what its ranks reported of it.
//
// Whatever reports hold is safe: what says nothing, or belongs to no rank of
// the pool, is left out. Pure; safe from any thread.
#ifndef SKRULL_SERVER_CALIBRATION_REPORTED_STEP_H_
#define SKRULL_SERVER_CALIBRATION_REPORTED_STEP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "skrull/planner/plan.h"
#include "skrull/v1/report.pb.h"

namespace skrull::calibration {

// Most reports of a step that are looked at: those of its lowest ranks.
inline constexpr int64_t kMaxReports = 1024;

struct ReportedStep {
  Plan plan;
  // Of its (step, attempt), one of each rank at most.
  std::vector<v1::StepReport> reports;
};

// True if a quorum reported OK: half of the pool's `ranks` (of the first
// kMaxReports of them), and at least two where there are two. A step that some
// rank really failed has none, as ranks wait for one another in every step; one
// rank that always says so does not keep the others from being heard.
bool IsComplete(const ReportedStep& step, int64_t ranks);

// Median wall time that the ranks with outcome OK measured, seconds: the times
// of honest ones are alike, and one of many cannot move it. nullopt unless a
// quorum measured it.
std::optional<double> MeasuredSeconds(const ReportedStep& step, int64_t ranks);

// Lengths of the batch the plan is of, by sequence.
std::vector<int64_t> LengthsOf(const Plan& plan);

// Seconds of a duration; 0 if it is unset or negative.
double SecondsOf(const google::protobuf::Duration& duration);

// The middle one, the higher of two. REQUIRES: values is not empty.
double Median(std::vector<double> values);

}  // namespace skrull::calibration

#endif  // SKRULL_SERVER_CALIBRATION_REPORTED_STEP_H_
