#include <nlohmann/json.hpp>

#include "skrull/cli/table.h"
#include "skrull/cli/top_view.h"

namespace skrull::cli {
namespace {

using nlohmann::ordered_json;

double SecondsSinceEpoch(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

ordered_json PlanJson(const DaemonPlan& plan) {
  return {{"job", plan.job},
          {"step", plan.step},
          {"attempt", plan.attempt},
          {"policy", plan.policy},
          {"time", SecondsSinceEpoch(plan.time)},
          {"planning_seconds", plan.planning_seconds},
          {"sequence_count", plan.sequence_count},
          {"token_count", plan.token_count},
          {"sharded_token_count", plan.sharded_token_count},
          {"micro_batch_count", plan.micro_batch_count},
          {"predicted_seconds", plan.predicted_seconds},
          {"lower_bound_seconds", plan.lower_bound_seconds},
          {"rank_imbalance", plan.rank_imbalance},
          {"dp_imbalance", plan.dp_imbalance},
          {"roll_back_count", plan.roll_back_count},
          {"rank_load", plan.rank_load}};
}

ordered_json JobJson(const DaemonJob& job) {
  return {{"name", job.name},
          {"owner", job.owner},
          {"generation", job.generation},
          {"calibration_epoch", job.calibration_epoch},
          {"rank_count", job.rank_count},
          {"bucket_size_tokens", job.bucket_size_tokens},
          {"plan_count", job.plan_count},
          {"report_count", job.report_count},
          {"out_of_memory_count", job.out_of_memory_count},
          {"last_plan", job.last_plan ? PlanJson(*job.last_plan) : nullptr}};
}

ordered_json StatusJson(const DaemonStatus& status) {
  ordered_json json = {{"version", status.version},
                       {"start_time", SecondsSinceEpoch(status.start_time)},
                       {"now", SecondsSinceEpoch(status.now)},
                       {"store", status.store},
                       {"draining", status.draining},
                       {"job_count", status.job_count},
                       {"planning_thread_count", status.planning_thread_count},
                       {"busy_thread_count", status.busy_thread_count},
                       {"queued_batch_count", status.queued_batch_count},
                       {"waiting_rank_count", status.waiting_rank_count},
                       {"plan_count", status.plan_count},
                       {"refusal_count", status.refusal_count},
                       {"report_count", status.report_count},
                       {"out_of_memory_count", status.out_of_memory_count},
                       {"jobs", ordered_json::array()},
                       {"plans", ordered_json::array()}};
  for (const DaemonJob& job : status.jobs) json["jobs"].push_back(JobJson(job));
  for (const DaemonPlan& plan : status.plans) {
    json["plans"].push_back(PlanJson(plan));
  }
  return json;
}

ordered_json RatesJson(const DaemonRates& rates) {
  return {{"plans", rates.plans},
          {"refusals", rates.refusals},
          {"reports", rates.reports},
          {"out_of_memory", rates.out_of_memory},
          {"job_plans", rates.job_plans}};
}

}  // namespace

std::string TopJson(const DaemonSample& sample) {
  ordered_json json = {{"server", sample.address}};
  if (!sample.status.ok()) {
    const absl::Status& error = sample.status.status();
    json["error"] = {{"code", absl::StatusCodeToString(error.code())},
                     {"message", std::string(error.message())}};
    return JsonRow(json);
  }
  json["status"] = StatusJson(*sample.status);
  json["rates"] = sample.rates ? RatesJson(*sample.rates) : nullptr;
  return JsonRow(json);
}

}  // namespace skrull::cli
