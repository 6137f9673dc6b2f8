#include "skrull/server/status/status_board.h"

#include <catch2/catch.hpp>

#include "skrull/planner/planner.h"
#include "skrull/server/metrics/job_series.h"
#include "skrull/tests/server/observe/manual_clock.h"

namespace skrull {
namespace {

using testing::ManualClock;

const std::vector<int64_t> kLengths = {10, 150, 20};

Job SmallJob() {
  JobSpec spec;
  spec.model.hidden_size = 64;
  spec.model.layer_count = 2;
  spec.model.attention_head_count = 4;
  spec.parallelism.dp_size = 2;
  spec.parallelism.cp_size = 2;
  spec.memory.bucket_size_tokens = 100;
  return Job::Create(spec).value();
}

// Puts a plan of the job on the board.
void AddPlan(uint64_t id, const std::string& name, int64_t step,
             StatusBoard* board) {
  const Job job = SmallJob();
  const Plan plan =
      MakePlan(job, kLengths,
               {.key = {name, step, 0}, .policy = Policy::kSkrull})
          .value();
  board->AddPlan(id, job, kLengths, plan, 0.25);
}

std::vector<std::string> JobNames(const StatusBoard& board) {
  std::vector<std::string> names;
  for (const auto& job : board.Jobs()) names.push_back(job.name);
  return names;
}

std::vector<int64_t> Steps(const StatusBoard& board) {
  std::vector<int64_t> steps;
  for (const auto& entry : board.Plans()) steps.push_back(entry.plan->step());
  return steps;
}

TEST_CASE("StatusBoard: tells of a plan what the plan says",
          "[server][status]") {
  ManualClock clock;
  StatusBoard board({}, &clock);
  AddPlan(1, "run7", 12, &board);
  const v1::PlanStatus plan = *board.Plans().at(0).plan;
  CHECK(plan.job() == "run7");
  CHECK(plan.step() == 12);
  CHECK(plan.policy() == v1::POLICY_SKRULL);
  CHECK(plan.time().seconds() ==
        std::chrono::system_clock::to_time_t(clock.Now()));
  CHECK(plan.planning_time().nanos() == 250'000'000);
  CHECK(plan.sequence_count() == 3);
  CHECK(plan.token_count() == 180);
  CHECK(plan.sharded_token_count() >= 150);
  CHECK(plan.micro_batch_count() >= 1);
  CHECK(plan.predicted_seconds() >= plan.lower_bound_seconds());
  CHECK(plan.rank_load_size() == 4);
}

TEST_CASE("StatusBoard: counts what jobs did, those active last first",
          "[server][status]") {
  ManualClock clock;
  StatusBoard board({}, &clock);
  AddPlan(1, "a", 1, &board);
  AddPlan(2, "b", 1, &board);
  AddPlan(1, "a", 2, &board);
  board.AddReport(1, "a", v1::STEP_OUTCOME_OK);
  board.AddReport(3, "c", v1::STEP_OUTCOME_OUT_OF_MEMORY);
  board.AddReport(1, "a", v1::STEP_OUTCOME_OUT_OF_MEMORY);
  CHECK(JobNames(board) == std::vector<std::string>{"a", "c", "b"});
  const StatusBoard::JobActivity a = board.Jobs().at(0);
  CHECK(a.plan_count == 2);
  CHECK(a.report_count == 2);
  CHECK(a.out_of_memory_count == 1);
  CHECK(a.last_plan->step() == 2);
  CHECK(a.bucket_size_tokens == 100);
  CHECK(board.Jobs().at(1).last_plan == nullptr);
}

TEST_CASE("StatusBoard: forgets the oldest plans and the idlest jobs",
          "[server][status]") {
  ManualClock clock;
  StatusBoard board({.max_jobs = 2, .max_plans = 3}, &clock);
  AddPlan(1, "a", 1, &board);
  AddPlan(2, "b", 2, &board);
  AddPlan(1, "a", 3, &board);
  AddPlan(3, "c", 4, &board);
  CHECK(JobNames(board) == std::vector<std::string>{"c", "a"});
  CHECK(Steps(board) == std::vector<int64_t>{4, 3, 2});
  // Whoever comes back starts anew.
  board.AddReport(2, "b", v1::STEP_OUTCOME_OK);
  CHECK(JobNames(board) == std::vector<std::string>{"b", "c"});
  CHECK(board.Jobs().at(0).plan_count == 0);
}

TEST_CASE("StatusBoard: of a job that ended nothing remains",
          "[server][status]") {
  ManualClock clock;
  StatusBoard board({}, &clock);
  AddPlan(1, "a", 1, &board);
  AddPlan(2, "b", 2, &board);
  AddPlan(1, "a", 3, &board);
  board.Forget(1);
  board.Forget(7);
  CHECK(JobNames(board) == std::vector<std::string>{"b"});
  CHECK(Steps(board) == std::vector<int64_t>{2});
}

TEST_CASE("JobSeries: one series a job and metric, of plans where there is one",
          "[server][metrics]") {
  ManualClock clock;
  StatusBoard board({}, &clock);
  AddPlan(1, "a", 1, &board);
  board.AddReport(2, "b", v1::STEP_OUTCOME_OUT_OF_MEMORY);
  const JobSeries series([&] { return board.Jobs(); });
  std::map<std::string, double> samples;
  for (const auto& family : series.Collect()) {
    for (const auto& metric : family.metric) {
      REQUIRE(metric.label.size() == 1);
      CHECK(metric.label[0].name == "job");
      samples[family.name + " " + metric.label[0].value] =
          family.type == prometheus::MetricType::Counter ? metric.counter.value
                                                         : metric.gauge.value;
    }
  }
  CHECK(samples["skrull_job_plans_total a"] == 1);
  CHECK(samples["skrull_job_plans_total b"] == 0);
  CHECK(samples["skrull_job_step_reports_total b"] == 1);
  CHECK(samples["skrull_job_out_of_memory_reports_total b"] == 1);
  CHECK(samples["skrull_job_bucket_tokens a"] == 100);
  CHECK(samples["skrull_job_predicted_seconds a"] > 0);
  CHECK(samples.contains("skrull_job_gap_ratio a"));
  CHECK(samples.contains("skrull_job_calibration_epoch a"));
  CHECK_FALSE(samples.contains("skrull_job_gap_ratio b"));
  CHECK(samples.size() == 10);
}

}  // namespace
}  // namespace skrull
