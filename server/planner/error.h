// Errors with a typed detail: what was wrong, for programs, beside the message
// for people.
//
// An absl::Status carries one ErrorDetail as a payload; convert turns it into
// the ErrorDetail of the wire. Pure; safe from any thread.
#ifndef SKRULL_SERVER_PLANNER_ERROR_H_
#define SKRULL_SERVER_PLANNER_ERROR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace skrull {

// Why a request was refused. The names are those of docs/errors.md and of the
// `reason` label of skrull_refusals_total: a closed set.
enum class ErrorReason : int8_t {
  kUnspecified,
  kEmptyBatch,       // INVALID_ARGUMENT: no lengths
  kFieldInvalid,     // INVALID_ARGUMENT: `field` (and `indices`) out of range
  kSequenceTooLong,  // FAILED_PRECONDITION: `indices` can never be placed
  kSimulatedOom,     // FAILED_PRECONDITION: as heuristic.roll_back = false asks
  kPlanConflict,     // FAILED_PRECONDITION: key committed for another request
  kGenerationMismatch,  // FAILED_PRECONDITION: job has another generation
  kRendezvousConflict,  // FAILED_PRECONDITION: ranks came with other terms
  kJobNotFound,         // NOT_FOUND
  kJobExists,           // ALREADY_EXISTS: same name, other spec
  kUnauthenticated,     // UNAUTHENTICATED: no valid token or certificate
  kPermissionDenied,    // PERMISSION_DENIED: not this caller's to do
  kQuotaExceeded,       // RESOURCE_EXHAUSTED: over the caller's own share
  kAttemptsExhausted,   // FAILED_PRECONDITION: out of memory once too often
  kLimitExceeded,       // RESOURCE_EXHAUSTED: over a server limit
  kQueueFull,           // RESOURCE_EXHAUSTED: planning queue full, retry
  kDraining,            // UNAVAILABLE: shutting down, retry elsewhere
  kDeadlineExceeded,    // DEADLINE_EXCEEDED
  kCancelled,           // CANCELLED: the caller went away
  kStoreFailed,         // UNAVAILABLE: the store could not commit or read
  kInternal,  // INTERNAL: a bug of ours, e.g. the checker refused a plan
};

// "SEQUENCE_TOO_LONG" for kSequenceTooLong, and so on.
std::string ErrorReasonName(ErrorReason reason);

// Every reason, in enum order.
std::vector<ErrorReason> AllErrorReasons();

struct ErrorDetail {
  // Most indices a detail lists; the message says how many there are in all.
  static constexpr int kMaxIndices = 32;

  ErrorReason reason = ErrorReason::kUnspecified;
  std::string field = {};  // path of the field at fault; may be empty
  std::vector<int64_t> indices = {};
  std::optional<int64_t> limit = std::nullopt;
  std::optional<double> retry_after_seconds = std::nullopt;

  friend bool operator==(const ErrorDetail&, const ErrorDetail&) = default;
};

// A status with the code of `detail.reason` (see ErrorReason), the message and
// the detail. REQUIRES: detail.reason != kUnspecified.
absl::Status MakeError(const ErrorDetail& detail, const std::string& message);

// INVALID_ARGUMENT, kFieldInvalid, with message "<field>: <problem>".
absl::Status FieldError(const std::string& field, const std::string& problem);

// The detail MakeError put into `status`; nullopt if it has none.
std::optional<ErrorDetail> GetErrorDetail(const absl::Status& status);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_ERROR_H_
