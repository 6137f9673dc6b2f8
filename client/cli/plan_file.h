// Files of plans: what `skrullctl plan --format json` prints, one line a batch.
#ifndef SKRULL_CLIENT_CLI_PLAN_FILE_H_
#define SKRULL_CLIENT_CLI_PLAN_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/cli/plan_json.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull::cli {

// The lines of a file, at least one; blank ones are skipped. Errors: those of
// ReadInput; INVALID_ARGUMENT with the path, the line and what is wrong.
absl::StatusOr<std::vector<PlanLine>> ReadPlans(const std::string& path);

// The batches that `lines` are about: as many as lines, in order. `batch_size`
// 0 = all lengths for one plan, else what the plans' largest sequence index
// says. The result refers to `lengths`. Errors: INVALID_ARGUMENT if that gives
// another number of batches.
absl::StatusOr<std::vector<std::span<const int64_t>>> MatchBatches(
    const std::vector<int64_t>& lengths, const std::vector<PlanLine>& lines,
    int64_t batch_size);

// The plan that a line holds, if it is a legal one of the batch, with the
// digest it says. Any message is safe input. Errors: FAILED_PRECONDITION naming
// the rule it breaks; INVALID_ARGUMENT for what has no native form.
absl::StatusOr<Plan> LegalPlan(const Job& job, std::span<const int64_t> lengths,
                               const v1::Plan& wire);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_PLAN_FILE_H_
