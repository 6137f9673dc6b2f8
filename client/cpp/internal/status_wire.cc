#include "skrull/client/internal/status_wire.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/util/json_util.h"

namespace skrull::client_internal {
namespace {

DaemonPlan PlanFromWire(const v1::PlanStatus& wire) {
  DaemonPlan plan;
  plan.job = wire.job();
  plan.step = wire.step();
  plan.attempt = wire.attempt();
  plan.policy = v1::Policy_Name(wire.policy());
  plan.time = TimeFromWire(wire.time());
  plan.planning_seconds = static_cast<double>(wire.planning_time().seconds()) +
                          1e-9 * wire.planning_time().nanos();
  plan.sequence_count = wire.sequence_count();
  plan.token_count = wire.token_count();
  plan.sharded_token_count = wire.sharded_token_count();
  plan.micro_batch_count = wire.micro_batch_count();
  plan.predicted_seconds = wire.predicted_seconds();
  plan.lower_bound_seconds = wire.lower_bound_seconds();
  plan.rank_imbalance = wire.rank_imbalance();
  plan.dp_imbalance = wire.dp_imbalance();
  plan.roll_back_count = wire.roll_back_count();
  plan.rank_load.assign(wire.rank_load().begin(), wire.rank_load().end());
  return plan;
}

DaemonJob JobFromWire(const v1::JobStatus& wire) {
  DaemonJob job;
  job.name = wire.name();
  job.owner = wire.owner();
  job.generation = wire.generation();
  job.calibration_epoch = wire.calibration_epoch();
  job.rank_count = wire.rank_count();
  job.bucket_size_tokens = wire.bucket_size_tokens();
  job.plan_count = wire.plan_count();
  job.report_count = wire.report_count();
  job.out_of_memory_count = wire.out_of_memory_count();
  if (wire.has_last_plan()) job.last_plan = PlanFromWire(wire.last_plan());
  return job;
}

}  // namespace

std::chrono::system_clock::time_point TimeFromWire(
    const google::protobuf::Timestamp& wire) {
  constexpr int64_t kMaxSeconds = 9'000'000'000;
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::seconds(
              std::clamp<int64_t>(wire.seconds(), 0, kMaxSeconds)) +
          std::chrono::nanoseconds(wire.nanos())));
}

DaemonStatus DaemonStatusFromWire(const v1::ServerStatus& wire) {
  DaemonStatus status;
  status.version = wire.version();
  status.start_time = TimeFromWire(wire.start_time());
  status.now = TimeFromWire(wire.now());
  status.store = wire.store();
  status.draining = wire.draining();
  status.job_count = wire.job_count();
  status.planning_thread_count = wire.planning_thread_count();
  status.busy_thread_count = wire.busy_thread_count();
  status.queued_batch_count = wire.queued_batch_count();
  status.waiting_rank_count = wire.waiting_rank_count();
  status.plan_count = wire.plan_count();
  status.refusal_count = wire.refusal_count();
  status.report_count = wire.report_count();
  status.out_of_memory_count = wire.out_of_memory_count();
  for (const v1::JobStatus& job : wire.jobs()) {
    status.jobs.push_back(JobFromWire(job));
  }
  for (const v1::PlanStatus& plan : wire.plans()) {
    status.plans.push_back(PlanFromWire(plan));
  }
  return status;
}

absl::StatusOr<std::string> JsonFromWire(
    const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) {
    return absl::InternalError(
        absl::StrCat("the daemon's ", message.GetTypeName(),
                     " has no JSON form: ", status.message().ToString()));
  }
  return json;
}

}  // namespace skrull::client_internal
