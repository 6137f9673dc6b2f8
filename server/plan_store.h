// Where committed plans and step reports are kept.
#ifndef SKRULL_SERVER_PLAN_STORE_H_
#define SKRULL_SERVER_PLAN_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/planner/plan.h"
#include "skrull/v1/report.pb.h"

namespace skrull {

// A committed plan: what was asked, and the bytes every caller gets.
struct PlanRecord {
  PlanKey key;
  int64_t generation = 0;      // of the job
  std::string request_digest;  // of lengths and policy, hexadecimal
  std::string plan;            // deterministic serialization of skrull.v1.Plan

  friend bool operator==(const PlanRecord&, const PlanRecord&) = default;
};

// Thread-safe. Calls may block on storage: never call on a gRPC thread. Any
// call may fail with kStoreFailed, having changed nothing.
class PlanStore {
 public:
  virtual ~PlanStore() = default;

  // Commits the record unless its (key, generation) is committed already, and
  // returns the record that stands: the caller compares request digests.
  // Durable, to the degree the backend promises, before it returns. Only the
  // `kept_steps` steps of a job that were committed last are kept; older ones
  // are forgotten. Errors: kJobNotFound, kGenerationMismatch (the job is gone
  // or was replaced: nothing is stored).
  virtual absl::StatusOr<PlanRecord> Commit(const PlanRecord& record,
                                            int64_t kept_steps) = 0;

  // The committed record; nullopt if there is none.
  virtual absl::StatusOr<std::optional<PlanRecord>> Find(
      const PlanKey& key, int64_t generation) = 0;

  // Stores a report, replacing the same rank's report of the same step and
  // attempt. Reports of forgotten steps are forgotten with them; reports of
  // steps that have no plan count as steps for `kept_steps` of their own.
  // Errors: as Commit.
  virtual absl::Status PutReport(const std::string& job, int64_t generation,
                                 const v1::StepReport& report,
                                 int64_t kept_steps) = 0;

  // All reports of a step and attempt, by rank.
  virtual absl::StatusOr<std::vector<v1::StepReport>> Reports(
      const PlanKey& key, int64_t generation) = 0;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLAN_STORE_H_
