// Uses skrull::planner as an installed package.
#include <cstdio>
#include <vector>

#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"

int main() {
  skrull::JobSpec spec;
  spec.model.hidden_size = 896;
  spec.model.layer_count = 24;
  spec.model.attention_head_count = 14;
  spec.parallelism.cp_size = 2;
  spec.memory.bucket_size_tokens = 10;
  const absl::StatusOr<skrull::Job> job = skrull::Job::Create(spec);
  if (!job.ok()) {
    std::puts(job.status().ToString().c_str());
    return 1;
  }
  const std::vector<int64_t> lengths = {1, 19};
  const absl::StatusOr<skrull::Plan> plan =
      skrull::MakePlan(*job, lengths, {.key = {"consumer", 0}});
  if (!plan.ok()) {
    std::puts(plan.status().ToString().c_str());
    return 1;
  }
  return skrull::CheckPlan(*job, lengths, *plan).ok() ? 0 : 1;
}
