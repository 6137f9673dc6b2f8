// Uses skrull::client as an installed package: no daemon is there to answer.
#include <chrono>
#include <cstdio>

#include "skrull/client/planner_client.h"

int main() {
  absl::StatusOr<std::unique_ptr<skrull::PlannerClient>> client =
      skrull::PlannerClient::Create(
          {.address = "unix:/nonexistent/skrulld",
           .unreachable_after = std::chrono::milliseconds(0)});
  if (!client.ok()) {
    std::puts(client.status().ToString().c_str());
    return 1;
  }
  const absl::StatusOr<skrull::JobInfo> job = (*client)->GetJob("run7");
  std::puts(job.status().ToString().c_str());
  return absl::IsUnavailable(job.status()) ? 0 : 1;
}
