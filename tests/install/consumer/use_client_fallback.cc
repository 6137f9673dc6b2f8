// Uses skrull::client_fallback as an installed package: no daemon is there.
#include <chrono>
#include <cstdio>

#include "skrull/client/fallback_planner.h"

int main() {
  const auto client = skrull::PlannerClient::Create(
      {.address = "unix:/nonexistent/skrulld",
       .unreachable_after = std::chrono::milliseconds(0)});
  if (!client.ok()) {
    std::puts(client.status().ToString().c_str());
    return 1;
  }
  const auto planner = skrull::FallbackPlanner::Create(
      client->get(),
      {.name = "run7",
       .generation = 1,
       .calibrated_spec_text =
           "model { hidden_size: 896 layer_count: 24 attention_head_count: 14 "
           "} parallelism { cp_size: 2 } memory { bucket_size_tokens: 10 }"});
  if (!planner.ok()) {
    std::puts(planner.status().ToString().c_str());
    return 1;
  }
  const auto plan = (*planner)->PlanBatch({.lengths = {1, 19}});
  return plan.ok() && plan->in_process && !plan->daemon.ok() ? 0 : 1;
}
