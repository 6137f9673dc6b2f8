// Is this plan legal? If not, which rule does it break first?
//
// Shares no code with the policies: it knows the layout, the job and the cost
// model. The daemon runs it on every plan it returns; the command line, tests
// and benches use the same. Pure; safe from any thread.
#ifndef SKRULL_SERVER_PLANNER_PLAN_CHECKER_H_
#define SKRULL_SERVER_PLANNER_PLAN_CHECKER_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull {

// OK if `plan` is a legal plan of `lengths` for `job`:
//  - every sequence of the batch is placed exactly once, with its own length;
//  - every placement is on a block that the job's scope allows;
//  - no rank of any micro-batch exceeds the memory rules (tokens, bytes with
//    gathered K/V), and no DP rank's micro-batch the sequence cap;
//  - per micro-batch figures, `blocks` and the summary equal what is recomputed
//    from the placements (seconds to 1e-9 relative; integers exactly; all
//    finite), and roll_back_count >= 0; with pp_size > 1, the plan's pipeline
//    is within kMaxStagePasses.
// A plan of POLICY_CHUNK_FLOW, or with chunks, is held to the rules of
// chunk_plan_checker.h instead.
// Otherwise FAILED_PRECONDITION with a message that names the rule, the
// micro-batch, the sequence or rank, both values and the limit.
// O(placements * log + ranks * micro-batches). Any plan is safe input.
absl::Status CheckPlan(const Job& job, std::span<const int64_t> lengths,
                       const Plan& plan);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_PLAN_CHECKER_H_
