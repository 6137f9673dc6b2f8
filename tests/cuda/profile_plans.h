// Plans made with what skrull-profile writes.
#ifndef SKRULL_TESTS_CUDA_PROFILE_PLANS_H_
#define SKRULL_TESTS_CUDA_PROFILE_PLANS_H_

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "skrull/client/local_planner.h"
#include "skrull/cuda/profile/cost.h"

namespace skrull::profile {

// The example trainer's.
inline const ModelShape kTrainerModel = {.hidden_size = 64,
                                         .layer_count = 2,
                                         .attention_head_count = 4,
                                         .kv_head_count = 2,
                                         .head_dim = 16,
                                         .intermediate_size = 128,
                                         .vocab_size = 128};

// Plans with the fragment, as a user would complete it to a job.
inline PlanResult PlanWith(const std::string& fragment,
                           const std::vector<int64_t>& lengths,
                           const std::string& policy = {}) {
  const auto planner = LocalPlanner::Create(
      fragment +
      "parallelism { dp_size: 2 cp_size: 2 block_scope: BLOCK_SCOPE_POOL }\n");
  INFO(fragment << planner.status());
  REQUIRE(planner.ok());
  const auto plan =
      (*planner)->PlanBatch({.lengths = lengths, .policy = policy});
  INFO(plan.status());
  REQUIRE(plan.ok());
  return *plan;
}

}  // namespace skrull::profile

#endif  // SKRULL_TESTS_CUDA_PROFILE_PLANS_H_
