// One request for a plan, from native request to committed plan.
#ifndef SKRULL_SERVER_BATCH_PLANNER_H_
#define SKRULL_SERVER_BATCH_PLANNER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "skrull/server/batch_request.h"
#include "skrull/server/clock.h"
#include "skrull/server/log.h"
#include "skrull/server/metrics.h"
#include "skrull/server/plan_caller.h"
#include "skrull/server/plan_store.h"

namespace skrull {

// Thread-safe. All it is given must outlive it.
class BatchPlanner {
 public:
  BatchPlanner(PlanStore* store, int64_t kept_steps, const Clock* clock,
               const Logger* logger, Metrics* metrics)
      : store_(store),
        kept_steps_(kept_steps),
        clock_(clock),
        logger_(logger),
        metrics_(metrics) {}

  // The plan that stands for the request: the one that is committed under its
  // key, or a new one, checked and, if the request says so, committed before
  // this returns. Errors: those of MakePlan; kPlanConflict, with both digests,
  // when the key is committed for another request; kJobNotFound or
  // kGenerationMismatch when the job has ended; kStoreFailed; kInternal when
  // the checker refuses our plan. Plans and blocks on storage: never on a gRPC
  // thread.
  PlanOutcome Answer(const BatchRequest& request) const;

  // `plan`, if the request is the one that it was committed for; else
  // kPlanConflict.
  static PlanOutcome Standing(const BatchRequest& request,
                              std::shared_ptr<const CommittedPlan> plan);

  // The committed plan in the store; nullptr if there is none. Errors:
  // kStoreFailed, kInternal.
  absl::StatusOr<std::shared_ptr<const CommittedPlan>> FindCommitted(
      const PlanKey& key, int64_t generation) const;

 private:
  PlanOutcome MakeAndCheck(const BatchRequest& request) const;
  PlanOutcome Commit(const BatchRequest& request, PlanAnswer answer) const;

  PlanStore* const store_;
  const int64_t kept_steps_;
  const Clock* const clock_;
  const Logger* const logger_;
  Metrics* const metrics_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_BATCH_PLANNER_H_
