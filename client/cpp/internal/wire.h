// The client's side of the wire: plain data <-> messages, and errors with their
// typed detail. Pure; safe from any thread. Not for users of the client.
#ifndef SKRULL_CLIENT_CPP_INTERNAL_WIRE_H_
#define SKRULL_CLIENT_CPP_INTERNAL_WIRE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/client/plan_stream.h"
#include "skrull/client/plan_types.h"
#include "skrull/client/refusal.h"
#include "skrull/v1/planner_service.pb.h"

namespace skrull::client_internal {

// Payload of an error that holds the id of the request that failed, and the end
// of its message.
inline constexpr char kRequestIdUrl[] = "skrull.request_id";
std::string RequestIdSuffix(const std::string& request_id);

// A status of `code` that GetRefusalDetail finds `detail` in.
absl::Status MakeStatus(absl::StatusCode code, const std::string& message,
                        const RefusalDetail& detail);

// INVALID_ARGUMENT, FIELD_INVALID, with message "<field>: <problem>": what the
// daemon would say, for what cannot be put into a message.
absl::Status InvalidField(const std::string& field, const std::string& problem);

// Code, message and detail of an error; OK for code 0. An unknown code becomes
// UNKNOWN.
absl::Status StatusFromWire(const v1::RpcStatus& wire);

// Errors: INVALID_ARGUMENT with line and column.
absl::StatusOr<v1::JobSpec> ParseSpecText(const std::string& text);

// "POLICY_SKRULL" -> its value; "" -> POLICY_UNSPECIFIED. Errors:
// INVALID_ARGUMENT listing the names there are.
absl::StatusOr<v1::Policy> PolicyFromName(const std::string& name);

// Errors: INVALID_ARGUMENT for a spec text or policy name that is none. All
// values are left to the daemon to check.
absl::StatusOr<v1::PlanBatchRequest> BatchToWire(const PlanRequest& request);

// Errors: INVALID_ARGUMENT for seconds a message cannot hold.
absl::StatusOr<v1::StepReport> ReportToWire(const StepReport& report);

CalibrationInfo CalibrationFromWire(const v1::Calibration& wire);

JobInfo JobFromWire(const v1::Job& wire);

// Errors: INTERNAL when the response holds no plan.
absl::StatusOr<PlanResult> PlanFromWire(const v1::PlanBatchResponse& wire);

// The result of planning in process.
PlanResult PlanFromWire(const v1::Plan& wire);

// Errors: INTERNAL for an operation on a chunk that this client does not know.
absl::StatusOr<RankPlan> RankPlanFromWire(const v1::RankPlan& wire);

}  // namespace skrull::client_internal

#endif  // SKRULL_CLIENT_CPP_INTERNAL_WIRE_H_
