// The checker's part for explanations.
#ifndef SKRULL_SERVER_PLANNER_EXPLANATION_CHECKER_H_
#define SKRULL_SERVER_PLANNER_EXPLANATION_CHECKER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull {

// OK if what the summary's explanation names exists, or there is none: a rank
// of the pool, one of the batch's `sequences`, a share in [0, 1], changes that
// lower the bound. Its words are not judged. Otherwise FAILED_PRECONDITION.
absl::Status CheckExplanation(const Job& job, int64_t sequences,
                              const PlanSummary& summary);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_EXPLANATION_CHECKER_H_
