// Plans the consecutive global batches of one list of lengths through a running
// daemon, under each policy, and sums up what came back.
#ifndef SKRULL_DEPLOY_DEMO_DEMO_H_
#define SKRULL_DEPLOY_DEMO_DEMO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/client/planner_client.h"
#include "skrull/planner/job.h"

namespace skrull::demo {

// One row of the table: a job, and the list it trains on.
struct Workload {
  std::string job_name;  // e.g. "qwen2.5-7b"
  std::string job_text;  // text form of skrull.v1.JobSpec
  std::string list_name;
  std::vector<int64_t> lengths;
  int64_t batch_size = 0;   // sequences in a global batch
  int64_t max_batches = 0;  // the first so many are planned
};

// What one policy's plans add up to, over the batches that were planned.
struct PolicySum {
  double predicted_seconds = 0;
  int64_t micro_batch_count = 0;
  int64_t sharded_token_count = 0;
  int64_t max_rank_tokens = 0;
  std::vector<double> planning_seconds;  // one a batch, the daemon's figure
};

struct Outcome {
  int64_t planned_batches = 0;
  int64_t token_count = 0;  // of those
  int64_t bucket_size = 0;  // tokens a rank holds
  PolicySum static_cp;
  PolicySum packed_static_cp;
  PolicySum skrull;
  PolicySum optimized;
  int64_t refused_batches = 0;
  std::string refusal;  // batch and reason of the first one
};

// Registers the job as "JOB.LIST" and plans. Plans of POLICY_SKRULL are
// committed, step by step; those of the other policies are what-ifs. Every plan
// is checked here too, with the plan checker. Errors: a batch that is refused
// is counted and is no error; a plan that the checker refuses is INTERNAL;
// everything else is passed through.
absl::StatusOr<Outcome> Run(PlannerClient& client, const Workload& workload);

// One integer a line; # comments and blank lines are skipped. Errors:
// INVALID_ARGUMENT naming file and line, or that there is no length.
absl::StatusOr<std::vector<int64_t>> ReadLengths(const std::string& path);

// Errors: NOT_FOUND.
absl::StatusOr<std::string> ReadText(const std::string& path);

}  // namespace skrull::demo

#endif  // SKRULL_DEPLOY_DEMO_DEMO_H_
