// Uses skrull::client_local, the planner in process, as an installed package.
#include <cstdio>

#include "skrull/client/local_planner.h"

int main() {
  const auto planner = skrull::LocalPlanner::Create(
      "model { hidden_size: 896 layer_count: 24 attention_head_count: 14 } "
      "parallelism { cp_size: 2 } memory { bucket_size_tokens: 10 }");
  if (!planner.ok()) {
    std::puts(planner.status().ToString().c_str());
    return 1;
  }
  const auto plan = (*planner)->PlanBatch({.lengths = {1, 19}});
  return plan.ok() && plan->figures.micro_batch_count == 1 ? 0 : 1;
}
