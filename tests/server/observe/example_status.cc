#include "skrull/tests/server/observe/example_status.h"

#include <cstdint>

namespace skrull::testing {
namespace {

constexpr int64_t kNow = 1'800'000'000;

v1::PlanStatus ExamplePlan(const std::string& text, int64_t step, int ranks) {
  v1::PlanStatus plan;
  plan.set_job(text);
  plan.set_step(step);
  plan.set_attempt(static_cast<int32_t>(step % 2));
  plan.set_policy(v1::POLICY_OPTIMIZED);
  plan.mutable_time()->set_seconds(kNow - 200);
  plan.mutable_planning_time()->set_nanos(640'000);
  plan.set_sequence_count(256);
  plan.set_token_count(1'234'567);
  plan.set_sharded_token_count(345'678);
  plan.set_micro_batch_count(7);
  plan.set_predicted_seconds(12.5);
  plan.set_lower_bound_seconds(12.1);
  plan.set_rank_imbalance(0.014);
  plan.set_dp_imbalance(0.009);
  for (int rank = 0; rank < ranks; ++rank) {
    plan.add_rank_load(static_cast<float>(0.4 + 0.6 * (rank * 7 % 16) / 16));
  }
  return plan;
}

}  // namespace

v1::ServerStatus ExampleStatus(const std::string& text) {
  v1::ServerStatus status;
  status.set_version(text);
  status.mutable_start_time()->set_seconds(kNow - 90'000);
  status.mutable_now()->set_seconds(kNow);
  status.set_store(text);
  status.set_job_count(2);
  status.set_planning_thread_count(2);
  status.set_busy_thread_count(1);
  status.set_plan_count(4);
  status.set_report_count(12'345);
  status.set_out_of_memory_count(1);
  for (int64_t step : {41, 40, 39, 38}) {
    *status.add_plans() = ExamplePlan(text, step, step == 40 ? 64 : 4);
  }
  for (int64_t generation : {1, 2}) {
    v1::JobStatus* const job = status.add_jobs();
    job->set_name(text);
    job->set_owner(text);
    job->set_generation(generation);
    job->set_rank_count(64);
    job->set_bucket_size_tokens(26'000);
    if (generation == 1) *job->mutable_last_plan() = status.plans(0);
  }
  return status;
}

}  // namespace skrull::testing
