// The next calibration epoch of a job, from its spec, the epoch in force and
// what its ranks reported: docs/calibration.md.
//
// Pure: the same spec, epoch, plans and reports give the same bytes, in
// whatever order the reports came. Numbers are rounded to six digits, so that
// machines whose libraries differ in a logarithm's last bit agree. Safe from
// any thread.
#ifndef SKRULL_SERVER_CALIBRATION_CALIBRATE_H_
#define SKRULL_SERVER_CALIBRATION_CALIBRATE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"
#include "skrull/server/calibration/reported_step.h"
#include "skrull/v1/calibration.pb.h"
#include "skrull/v1/job.pb.h"

namespace skrull {

// What a calibration looks at. `spec` and the numbers of `standing` are valid;
// plans are legal for the spec's pool.
struct CalibrationInput {
  v1::JobSpec spec;          // as it was registered
  v1::Calibration standing;  // the epoch in force
  // Of the steps committed last, the latest attempt each. Order does not
  // matter; at most kWindowSteps are looked at, those of the highest steps.
  std::vector<calibration::ReportedStep> steps;
};

// The epoch that the reports ask for: numbers that predict times and peaks
// materially better, a smaller bucket if peaks say that the one in force does
// not fit, or a larger one on evidence (calibration/bucket.h). nullopt if they
// ask for none; if fewer than kEpochSteps complete steps are later than the
// (step, attempt) of the epoch in force; or if the spec refuses refits.
// A smaller bucket still holds every sequence of the steps looked at: a
// prediction must not refuse what ran.
std::optional<v1::Calibration> Refit(const CalibrationInput& input);

// True if a first report of `step` ends a stretch after which Refit is called:
// the latest multiple of kEpochSteps that is <= step is above `newest`, the
// highest step reported before; -1 = none.
bool EndsStretch(int64_t newest, int64_t step);

// The first step that a Refit at `step` must not look at: its ranks may not all
// have reported yet.
int64_t StretchEnd(int64_t step);

// Rows that `rank` holds in the micro-batch of `plan` that needs most memory
// (of chunks: at a time). 0 for a rank outside the pool. REQUIRES: the plan is
// legal for the job's pool.
int64_t MostRowsOf(const Job& job, const Plan& plan, int32_t rank);

// The epoch that follows from `rank` running out of memory in `failed`, a plan
// of the epoch in force: a bucket below the rows it held
// (calibration/bucket.h), raised where a sequence of the batch needs it to at
// most one row less than those. Errors: FAILED_PRECONDITION,
// kAttemptsExhausted, if there is no smaller bucket to try or none that holds
// the batch; it says what was tried and what would help.
absl::StatusOr<v1::Calibration> CalibrateOutOfMemory(
    const CalibrationInput& input, const Plan& failed, int32_t rank);

// The epoch with which a batch can be planned that the epoch in force refuses
// for its bucket alone: the smallest bucket that holds it, below the rows that
// a rank ran out of memory with and at most the spec's. To try costs an
// attempt, to refuse costs the run. No report led to it, so that its (step,
// attempt) stay those of the epoch before; `step` is for its text. nullopt if
// there is none, or none is needed.
std::optional<v1::Calibration> CalibrateForBatch(
    const v1::JobSpec& spec, const v1::Calibration& standing, int64_t step,
    Policy policy, std::span<const int64_t> lengths);

}  // namespace skrull

#endif  // SKRULL_SERVER_CALIBRATION_CALIBRATE_H_
