// The planner in process: the fallback of a trainer without a daemon, and what
// `skrullctl plan --offline` runs. Same results, byte for byte, as the daemon's
// for the same job, key, lengths and policy.
//
// Unlike a daemon it commits nothing: ranks must give it the same lengths
// themselves, and compare digests (digest_agreement.h).
#ifndef SKRULL_CLIENT_CPP_LOCAL_PLANNER_H_
#define SKRULL_CLIENT_CPP_LOCAL_PLANNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/client/plan_types.h"

namespace skrull {

// One global batch to plan in process.
struct LocalBatch {
  std::string job = {};  // copied into the plan; may be empty
  int64_t step = 0;      // >= 0
  int32_t attempt = 0;   // 0 .. 1000
  // Lengths of the batch's sequences in tokens, each 1 .. 2^31 - 1.
  std::vector<int64_t> lengths = {};
  // Name of a policy, e.g. "POLICY_SKRULL"; empty = the job's.
  std::string policy = {};
};

// Immutable; thread-safe.
class LocalPlanner {
 public:
  // From the text form of skrull.v1.JobSpec. `calibration_epoch` is copied into
  // plans (>= 0). Errors: INVALID_ARGUMENT with line and column, or naming the
  // field.
  static absl::StatusOr<std::unique_ptr<LocalPlanner>> Create(
      const std::string& job_spec_text, int64_t calibration_epoch = 0);

  ~LocalPlanner();

  LocalPlanner(const LocalPlanner&) = delete;
  LocalPlanner& operator=(const LocalPlanner&) = delete;

  // Errors: INVALID_ARGUMENT and FAILED_PRECONDITION as PlannerClient's, with
  // the same messages and details. Never blocks on anything but the CPU.
  absl::StatusOr<PlanResult> PlanBatch(const LocalBatch& batch) const;

 private:
  class Impl;
  explicit LocalPlanner(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

}  // namespace skrull

#endif  // SKRULL_CLIENT_CPP_LOCAL_PLANNER_H_
