// Wire messages <-> native types: the only place that knows both, and where all
// validation of requests' contents lives.
//
// Everything here is pure and safe from any thread. Nothing a message holds can
// crash it: what is out of range is refused with INVALID_ARGUMENT and an
// ErrorDetail that names the field by its proto path.
#ifndef SKRULL_SERVER_CONVERT_H_
#define SKRULL_SERVER_CONVERT_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"
#include "skrull/planner/rank_plan.h"
#include "skrull/v1/job.pb.h"
#include "skrull/v1/plan.pb.h"
#include "skrull/v1/planner_service.pb.h"

namespace skrull {

// The job a spec describes, validated. Errors: INVALID_ARGUMENT.
absl::StatusOr<Job> JobFromProto(const v1::JobSpec& spec);

// Parses the text form (*.textproto). Errors: INVALID_ARGUMENT with line,
// column and what is wrong. Does not validate values: JobFromProto does.
absl::StatusOr<v1::JobSpec> ParseJobSpecText(const std::string& text);

// Deterministic serialization: two specs are the same job when these are equal.
std::string CanonicalBytes(const google::protobuf::Message& message);

// nullopt for POLICY_UNSPECIFIED. Errors: INVALID_ARGUMENT for an unknown
// value, naming `field`.
absl::StatusOr<std::optional<Policy>> PolicyFromProto(v1::Policy policy,
                                                      const std::string& field);
v1::Policy PolicyToProto(Policy policy);

// The wire form with its digest set.
v1::Plan PlanToProto(const Plan& plan);

// The deterministic serialization of that, and its digest. Serializes once.
struct EncodedPlan {
  std::string digest;
  std::string bytes;
};
EncodedPlan EncodePlan(const Plan& plan);

// Errors: INVALID_ARGUMENT for what has no native form (unknown policy). Does
// not check that the plan is legal (CheckPlan does), nor its digest.
absl::StatusOr<Plan> PlanFromProto(const v1::Plan& plan);

// SHA-256, lower-case hexadecimal, of the deterministic serialization of `plan`
// with its digest empty. The order of fields on the wire does not matter.
// Fields that this version does not know count: they come last, as in the bytes
// of the newer version that wrote them, so that both compute the same.
std::string PlanDigest(const v1::Plan& plan);

// SHA-256 of any bytes, lower-case hexadecimal.
std::string Sha256Hex(const std::string& bytes);

v1::RankPlan RankPlanToProto(const RankPlan& plan);

// The job name, or why it is none: INVALID_ARGUMENT naming `field`.
absl::Status ValidateJobName(const std::string& name, const std::string& field);

// A status as the wire carries it: code, message and one ErrorDetail.
v1::RpcStatus StatusToProto(const absl::Status& status);
// The inverse; an unknown code becomes UNKNOWN.
absl::Status StatusFromProto(const v1::RpcStatus& status);

}  // namespace skrull

#endif  // SKRULL_SERVER_CONVERT_H_
