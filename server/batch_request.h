// What a PlanBatchRequest asks for, checked against everything but the planner.
#ifndef SKRULL_SERVER_BATCH_REQUEST_H_
#define SKRULL_SERVER_BATCH_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"
#include "skrull/server/auth/caller.h"
#include "skrull/server/job_directory.h"
#include "skrull/server/options.h"
#include "skrull/server/plan_directory.h"
#include "skrull/v1/planner_service.pb.h"

namespace skrull {

inline constexpr int32_t kMaxAttempt = 1000;

struct BatchRequest {
  // nullptr: planned for `spec_job`, and never committed.
  std::shared_ptr<RegisteredJob> registered;
  // Of `registered`: the epoch that the batch is planned in.
  std::shared_ptr<const CalibratedJob> calibrated;
  std::shared_ptr<const Job> spec_job;
  PlanKey key;
  std::vector<int64_t> lengths;
  Policy policy = Policy::kSkrull;
  bool commit = false;
  // Of lengths and policy.
  std::string digest;

  const Job& job() const {
    return calibrated != nullptr ? calibrated->job : *spec_job;
  }
  int64_t calibration_epoch() const {
    return calibrated != nullptr ? calibrated->calibration.epoch() : 0;
  }
  // REQUIRES: registered.
  StepKey step_key() const { return {registered->id(), key.step, key.attempt}; }
  // Equal for requests that are answered with one plan; empty if this one is
  // like no other.
  std::string flight_key() const;
};

// Checks and resolves a request of `who`, of `request_bytes` bytes. Errors:
// INVALID_ARGUMENT naming the field; RESOURCE_EXHAUSTED over `options`' limits
// of lengths, bytes or ranks; kJobNotFound; kPermissionDenied;
// kGenerationMismatch. O(lengths).
absl::StatusOr<BatchRequest> ReadBatchRequest(
    const Caller& who, const v1::PlanBatchRequest& request,
    int64_t request_bytes, const ServerOptions& options, JobDirectory* jobs);

// RESOURCE_EXHAUSTED, kLimitExceeded, for a request over `options`' limit.
absl::Status CheckRequestBytes(int64_t request_bytes,
                               const ServerOptions& options);

// The job that a serialized PlanBatchRequest names, from its first bytes: at
// least kJobPeekBytes of them, or all. Empty if it names none, or not in its
// first field; every encoder writes fields in order. No other field is read.
inline constexpr size_t kJobPeekBytes = 256;
std::string PeekJob(const std::string& first_bytes);

// INVALID_ARGUMENT, naming the field, unless step >= 0 and attempt is in
// 0 .. kMaxAttempt.
absl::Status CheckStep(int64_t step, int32_t attempt,
                       const std::string& field_prefix = "");

// RESOURCE_EXHAUSTED, kLimitExceeded, if the job has more than `max_ranks`.
absl::Status CheckRanks(const Job& job, int64_t max_ranks);

}  // namespace skrull

#endif  // SKRULL_SERVER_BATCH_REQUEST_H_
