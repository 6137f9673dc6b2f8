// Step reports of skrull_client.h, whoever sends them on.
#ifndef SKRULL_CLIENT_C_API_REPORT_H_
#define SKRULL_CLIENT_C_API_REPORT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/c_api/call.h"
#include "skrull/c_api/skrull_client.h"
#include "skrull/client/plan_types.h"

namespace skrull::client_c {

// Errors: INVALID_ARGUMENT for an outcome that is none; UNIMPLEMENTED for a
// reserved field that is set. Other values are left to the daemon to check.
absl::StatusOr<StepReport> ReadReport(const skrull_client_step_report& given);

// Sends the report by `send`, which returns a StatusOr<ReportAnswer>, and fills
// the caller's answer. A refusal of a further attempt is an error of the call.
template <class Send>
absl::Status SendReport(const skrull_client_step_report& given,
                        skrull_client_report_answer* answer, const Send& send) {
  skrull_client_report_answer filled;
  SKRULL_CLIENT_C_RETURN_IF_ERROR(BeginFilling(answer, "answer", &filled));
  const absl::StatusOr<StepReport> report = ReadReport(given);
  if (!report.ok()) return report.status();
  const absl::StatusOr<ReportAnswer> answered = send(*report);
  if (!answered.ok()) return answered.status();
  SKRULL_CLIENT_C_RETURN_IF_ERROR(answered->refusal);
  filled.attempt = answered->attempt;
  filled.calibration_epoch = answered->calibration_epoch;
  *answer = filled;
  return absl::OkStatus();
}

}  // namespace skrull::client_c

#endif  // SKRULL_CLIENT_C_API_REPORT_H_
