// PlannerService's calls about step reports and what they taught.
#include <optional>
#include <vector>

#include "skrull/server/planner_service.h"

namespace skrull {

grpc::ServerUnaryReactor* PlannerService::ReportStep(
    grpc::CallbackServerContext* context, const v1::ReportStepRequest* request,
    v1::ReportStepResponse* response) {
  UnaryCall* const call =
      NewCall(RpcMethod::kReportStep, context, request->job());
  const std::optional<Caller> who = Admit(*context, Access::kUse, call);
  if (!who) return call;
  backend_->ReportStep(
      *who, *request,
      [call, request,
       response](const absl::StatusOr<v1::ReportStepResponse>& answer) {
        const v1::StepReport& report = request->report();
        if (answer.ok()) *response = *answer;
        if (answer.ok() && report.outcome() == v1::STEP_OUTCOME_OUT_OF_MEMORY) {
          call->Log(LogLevel::kWarning, "out_of_memory",
                    {{"step", report.step()},
                     {"attempt", report.attempt()},
                     {"rank", report.rank()},
                     {"peak_bytes", report.peak_bytes()},
                     {"next_attempt", answer->attempt()}});
        }
        call->Answer(answer.status());
      });
  return call;
}

grpc::ServerUnaryReactor* PlannerService::ListCalibrations(
    grpc::CallbackServerContext* context,
    const v1::ListCalibrationsRequest* request,
    v1::ListCalibrationsResponse* response) {
  UnaryCall* const call =
      NewCall(RpcMethod::kListCalibrations, context, request->job());
  const std::optional<Caller> who = Admit(*context, Access::kLook, call);
  if (!who) return call;
  backend_->ListCalibrations(
      *who, *request,
      [call,
       response](const absl::StatusOr<std::vector<v1::Calibration>>& epochs) {
        if (epochs.ok()) {
          response->mutable_calibrations()->Add(epochs->begin(), epochs->end());
        }
        call->Answer(epochs.status());
      });
  return call;
}

}  // namespace skrull
