#include "skrull/planner/error.h"

#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace skrull {
namespace {

// The payload is five lines: reason, field, indices, limit, retry_after; the
// last three empty when unset. It never leaves the process.
constexpr char kPayloadUrl[] = "skrull.ErrorDetail";

struct ReasonRow {
  ErrorReason reason;
  const char* name;
  absl::StatusCode code;
};

constexpr ReasonRow kReasons[] = {
    {ErrorReason::kUnspecified, "UNSPECIFIED", absl::StatusCode::kUnknown},
    {ErrorReason::kEmptyBatch, "EMPTY_BATCH",
     absl::StatusCode::kInvalidArgument},
    {ErrorReason::kFieldInvalid, "FIELD_INVALID",
     absl::StatusCode::kInvalidArgument},
    {ErrorReason::kSequenceTooLong, "SEQUENCE_TOO_LONG",
     absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kSimulatedOom, "SIMULATED_OUT_OF_MEMORY",
     absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kPlanConflict, "PLAN_CONFLICT",
     absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kGenerationMismatch, "GENERATION_MISMATCH",
     absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kRendezvousConflict, "RENDEZVOUS_CONFLICT",
     absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kJobNotFound, "JOB_NOT_FOUND", absl::StatusCode::kNotFound},
    {ErrorReason::kJobExists, "JOB_EXISTS", absl::StatusCode::kAlreadyExists},
    {ErrorReason::kUnauthenticated, "UNAUTHENTICATED",
     absl::StatusCode::kUnauthenticated},
    {ErrorReason::kPermissionDenied, "PERMISSION_DENIED",
     absl::StatusCode::kPermissionDenied},
    {ErrorReason::kQuotaExceeded, "QUOTA_EXCEEDED",
     absl::StatusCode::kResourceExhausted},
    {ErrorReason::kAttemptsExhausted, "ATTEMPTS_EXHAUSTED",
     absl::StatusCode::kFailedPrecondition},
    {ErrorReason::kLimitExceeded, "LIMIT_EXCEEDED",
     absl::StatusCode::kResourceExhausted},
    {ErrorReason::kQueueFull, "QUEUE_FULL",
     absl::StatusCode::kResourceExhausted},
    {ErrorReason::kDraining, "DRAINING", absl::StatusCode::kUnavailable},
    {ErrorReason::kDeadlineExceeded, "DEADLINE_EXCEEDED",
     absl::StatusCode::kDeadlineExceeded},
    {ErrorReason::kCancelled, "CANCELLED", absl::StatusCode::kCancelled},
    {ErrorReason::kStoreFailed, "STORE_FAILED", absl::StatusCode::kUnavailable},
    {ErrorReason::kInternal, "INTERNAL", absl::StatusCode::kInternal},
};

const ReasonRow& Row(ErrorReason reason) {
  for (const ReasonRow& row : kReasons) {
    if (row.reason == reason) return row;
  }
  return kReasons[0];
}

}  // namespace

std::string ErrorReasonName(ErrorReason reason) { return Row(reason).name; }

std::vector<ErrorReason> AllErrorReasons() {
  std::vector<ErrorReason> reasons;
  for (const ReasonRow& row : kReasons) reasons.push_back(row.reason);
  return reasons;
}

absl::Status MakeError(const ErrorDetail& detail, const std::string& message) {
  absl::Status status(Row(detail.reason).code, message);
  status.SetPayload(
      kPayloadUrl,
      absl::Cord(absl::StrCat(
          static_cast<int>(detail.reason), "\n", detail.field, "\n",
          absl::StrJoin(detail.indices, ","), "\n",
          detail.limit ? absl::StrCat(*detail.limit) : "", "\n",
          detail.retry_after_seconds ? absl::StrCat(*detail.retry_after_seconds)
                                     : "")));
  return status;
}

absl::Status FieldError(const std::string& field, const std::string& problem) {
  return MakeError({.reason = ErrorReason::kFieldInvalid, .field = field},
                   absl::StrCat(field, ": ", problem));
}

std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  if (!payload) return std::nullopt;
  const std::vector<std::string> lines =
      absl::StrSplit(std::string(*payload), '\n');
  if (lines.size() != 5) return std::nullopt;
  ErrorDetail detail;
  int reason = 0;
  if (!absl::SimpleAtoi(lines[0], &reason)) return std::nullopt;
  detail.reason = static_cast<ErrorReason>(reason);
  detail.field = lines[1];
  for (const std::string& item : std::vector<std::string>(
           absl::StrSplit(lines[2], ',', absl::SkipEmpty()))) {
    int64_t index = 0;
    if (absl::SimpleAtoi(item, &index)) detail.indices.push_back(index);
  }
  int64_t limit = 0;
  if (absl::SimpleAtoi(lines[3], &limit)) detail.limit = limit;
  double retry = 0;
  if (absl::SimpleAtod(lines[4], &retry)) detail.retry_after_seconds = retry;
  return detail;
}

}  // namespace skrull
