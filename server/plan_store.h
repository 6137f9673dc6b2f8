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
#include "skrull/server/job_life.h"
#include "skrull/v1/report.pb.h"

namespace skrull {

// A committed plan: what was asked, and the bytes every caller gets.
struct PlanRecord {
  PlanKey key;
  int64_t generation = 0;      // of the job
  std::string request_digest;  // of lengths and policy, hexadecimal
  std::string plan;            // deterministic serialization of skrull.v1.Plan
  // JobRecord::birth of the life it was made for; 0 = any. Read by Commit
  // alone, not stored, and no part of equality.
  int64_t birth = 0;

  friend bool operator==(const PlanRecord& a, const PlanRecord& b) {
    return a.key == b.key && a.generation == b.generation &&
           a.request_digest == b.request_digest && a.plan == b.plan;
  }
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
  // or was replaced, if only by one of the same generation and another birth:
  // nothing is stored).
  virtual absl::StatusOr<PlanRecord> Commit(const PlanRecord& record,
                                            int64_t kept_steps) = 0;

  // The committed record; nullopt if there is none.
  virtual absl::StatusOr<std::optional<PlanRecord>> Find(
      const PlanKey& key, int64_t generation) = 0;

  // Stores a report, replacing the same rank's report of the same step and
  // attempt. Reports of forgotten steps are forgotten with them; reports of
  // steps that have no plan count as steps for `kept_steps` of their own.
  // Errors: kJobNotFound, kGenerationMismatch (the life has ended: nothing is
  // stored).
  virtual absl::Status PutReport(const JobLife& life,
                                 const v1::StepReport& report,
                                 int64_t kept_steps) = 0;

  // Reports of a step and attempt, by rank: those of the lowest ranks, at most
  // `limit`.
  virtual absl::StatusOr<std::vector<v1::StepReport>> Reports(
      const PlanKey& key, int64_t generation, int64_t limit) = 0;

  // Of the `limit` planned steps that were committed last, newest first, the
  // highest committed attempt of each. None if the job is not there at that
  // generation.
  virtual absl::StatusOr<std::vector<PlanKey>> LatestSteps(
      const std::string& job, int64_t generation, int64_t limit) = 0;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLAN_STORE_H_
