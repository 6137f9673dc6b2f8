#include "skrull/client/planner_client.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "skrull/client/internal/connection.h"
#include "skrull/client/internal/health.h"
#include "skrull/client/internal/rendezvous_call.h"
#include "skrull/client/internal/status_wire.h"
#include "skrull/client/internal/stream_pump.h"
#include "skrull/client/internal/wire.h"

namespace skrull {

using client_internal::Connection;
using client_internal::SteadyTime;

class PlannerClient::Impl {
 public:
  explicit Impl(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {}

  const std::shared_ptr<Connection>& connection() { return connection_; }

  // One call of the service, with deadline and retries.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(
      const char* name,
      grpc::Status (v1::PlannerService::Stub::*method)(grpc::ClientContext*,
                                                       const Request&,
                                                       Response*),
      const Request& request, SteadyTime deadline,
      const std::string& traceparent, int* attempts = nullptr) {
    Response response;
    absl::Status status = connection_->Call(
        name, deadline, traceparent, [&](grpc::ClientContext* context) {
          if (attempts != nullptr) ++*attempts;
          response.Clear();
          return (connection_->stub().*method)(context, request, &response);
        });
    if (!status.ok()) return status;
    return response;
  }

  // The same, as `call` says.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(
      const char* name,
      grpc::Status (v1::PlannerService::Stub::*method)(grpc::ClientContext*,
                                                       const Request&,
                                                       Response*),
      const Request& request, const CallOptions& call,
      int* attempts = nullptr) {
    const absl::StatusOr<SteadyTime> deadline =
        connection_->Deadline(call.timeout);
    if (!deadline.ok()) return deadline.status();
    return Call(name, method, request, *deadline, call.traceparent, attempts);
  }

 private:
  const std::shared_ptr<Connection> connection_;
};

absl::StatusOr<std::unique_ptr<PlannerClient>> PlannerClient::Create(
    const ClientOptions& options) {
  absl::StatusOr<std::shared_ptr<Connection>> connection =
      Connection::Create(options);
  if (!connection.ok()) return connection.status();
  return std::unique_ptr<PlannerClient>(
      new PlannerClient(std::make_unique<Impl>(*std::move(connection))));
}

PlannerClient::PlannerClient(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

PlannerClient::~PlannerClient() {
  // In a forked child gRPC's threads are gone: closing the channel could wait
  // for them for ever.
  if (!impl_->connection()->CheckProcess().ok()) (void)impl_.release();
}

absl::Status PlannerClient::CheckHealth(const CallOptions& call) {
  Connection& connection = *impl_->connection();
  absl::Status process = connection.CheckProcess();
  if (!process.ok()) return process;
  const absl::StatusOr<SteadyTime> deadline = connection.Deadline(call.timeout);
  if (!deadline.ok()) return deadline.status();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       (*deadline - std::chrono::steady_clock::now()));
  return client_internal::StatusFromGrpc(
      client_internal::CheckHealth(connection.channel(),
                                   v1::PlannerService::service_full_name(),
                                   &context),
      "the health of " + connection.options().address);
}

absl::StatusOr<JobInfo> PlannerClient::CreateJob(
    const std::string& name, const std::string& job_spec_text,
    int64_t generation, const CallOptions& call) {
  absl::StatusOr<v1::JobSpec> spec =
      client_internal::ParseSpecText(job_spec_text);
  if (!spec.ok()) return spec.status();
  v1::CreateJobRequest request;
  request.set_name(name);
  *request.mutable_spec() = *std::move(spec);
  request.set_generation(generation);
  const absl::StatusOr<v1::Job> job = impl_->Call(
      "CreateJob", &v1::PlannerService::Stub::CreateJob, request, call);
  if (!job.ok()) return job.status();
  return client_internal::JobFromWire(*job);
}

absl::StatusOr<JobInfo> PlannerClient::GetJob(const std::string& name,
                                              const CallOptions& call) {
  v1::GetJobRequest request;
  request.set_name(name);
  const absl::StatusOr<v1::Job> job =
      impl_->Call("GetJob", &v1::PlannerService::Stub::GetJob, request, call);
  if (!job.ok()) return job.status();
  return client_internal::JobFromWire(*job);
}

absl::StatusOr<std::vector<JobInfo>> PlannerClient::ListJobs(
    const CallOptions& call) {
  const absl::StatusOr<SteadyTime> deadline =
      impl_->connection()->Deadline(call.timeout);
  if (!deadline.ok()) return deadline.status();
  std::vector<JobInfo> jobs;
  v1::ListJobsRequest request;
  do {
    const absl::StatusOr<v1::ListJobsResponse> page =
        impl_->Call("ListJobs", &v1::PlannerService::Stub::ListJobs, request,
                    *deadline, call.traceparent);
    if (!page.ok()) return page.status();
    for (const v1::Job& job : page->jobs()) {
      jobs.push_back(client_internal::JobFromWire(job));
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return jobs;
}

absl::Status PlannerClient::DeleteJob(const std::string& name,
                                      int64_t generation,
                                      const CallOptions& call) {
  v1::DeleteJobRequest request;
  request.set_name(name);
  request.set_generation(generation);
  int attempts = 0;
  const absl::Status status =
      impl_
          ->Call("DeleteJob", &v1::PlannerService::Stub::DeleteJob, request,
                 call, &attempts)
          .status();
  // An earlier attempt did it, and its answer was lost.
  if (absl::IsNotFound(status) && attempts > 1) return absl::OkStatus();
  return status;
}

absl::StatusOr<PlanResult> PlannerClient::PlanBatch(const PlanRequest& request,
                                                    const CallOptions& call) {
  const absl::StatusOr<v1::PlanBatchRequest> wire =
      client_internal::BatchToWire(request);
  if (!wire.ok()) return wire.status();
  const absl::StatusOr<v1::PlanBatchResponse> response = impl_->Call(
      "PlanBatch", &v1::PlannerService::Stub::PlanBatch, *wire, call);
  if (!response.ok()) return response.status();
  return client_internal::PlanFromWire(*response);
}

absl::StatusOr<RankPlan> PlannerClient::GetRankPlan(
    const RankPlanRequest& request, const CallOptions& call) {
  v1::GetRankPlanRequest wire;
  wire.set_job(request.job);
  wire.set_generation(request.generation);
  wire.set_step(request.step);
  wire.set_attempt(request.attempt);
  wire.set_rank(request.rank);
  const absl::StatusOr<v1::RankPlan> response = impl_->Call(
      "GetRankPlan", &v1::PlannerService::Stub::GetRankPlan, wire, call);
  if (!response.ok()) return response.status();
  return client_internal::RankPlanFromWire(*response);
}

absl::StatusOr<std::string> PlannerClient::Rendezvous(
    const RendezvousRequest& request, const CallOptions& call) {
  v1::RendezvousRequest wire;
  wire.set_job(request.job);
  wire.set_generation(request.generation);
  wire.set_key(request.key);
  wire.set_size(request.size);
  wire.set_rank(request.rank);
  wire.set_offer(request.offer);
  const absl::StatusOr<SteadyTime> deadline =
      impl_->connection()->Deadline(call.timeout);
  if (!deadline.ok()) return deadline.status();
  absl::StatusOr<v1::RendezvousResponse> response =
      client_internal::MeetAtOneReplica(impl_->connection().get(), wire,
                                        *deadline, call.traceparent);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_offer());
}

absl::StatusOr<ReportAnswer> PlannerClient::ReportStep(
    const std::string& job, int64_t generation, const StepReport& report,
    const CallOptions& call) {
  absl::StatusOr<v1::StepReport> wire = client_internal::ReportToWire(report);
  if (!wire.ok()) return wire.status();
  v1::ReportStepRequest request;
  request.set_job(job);
  request.set_generation(generation);
  *request.mutable_report() = *std::move(wire);
  const absl::StatusOr<v1::ReportStepResponse> answer = impl_->Call(
      "ReportStep", &v1::PlannerService::Stub::ReportStep, request, call);
  if (!answer.ok()) return answer.status();
  return ReportAnswer{
      .attempt = answer->attempt(),
      .calibration_epoch = answer->calibration_epoch(),
      .refusal = client_internal::StatusFromWire(answer->refusal())};
}

absl::StatusOr<std::vector<CalibrationInfo>> PlannerClient::ListCalibrations(
    const std::string& job, int64_t generation, const CallOptions& call) {
  v1::ListCalibrationsRequest request;
  request.set_job(job);
  request.set_generation(generation);
  const absl::StatusOr<v1::ListCalibrationsResponse> answer =
      impl_->Call("ListCalibrations",
                  &v1::PlannerService::Stub::ListCalibrations, request, call);
  if (!answer.ok()) return answer.status();
  std::vector<CalibrationInfo> epochs;
  for (const v1::Calibration& epoch : answer->calibrations()) {
    epochs.push_back(client_internal::CalibrationFromWire(epoch));
  }
  return epochs;
}

absl::StatusOr<DaemonStatus> PlannerClient::GetStatus(int32_t max_jobs,
                                                      int32_t max_plans,
                                                      const CallOptions& call) {
  v1::GetStatusRequest request;
  request.set_max_jobs(max_jobs);
  request.set_max_plans(max_plans);
  const absl::StatusOr<v1::ServerStatus> status = impl_->Call(
      "GetStatus", &v1::PlannerService::Stub::GetStatus, request, call);
  if (!status.ok()) return status.status();
  return client_internal::DaemonStatusFromWire(*status);
}

absl::StatusOr<std::string> PlannerClient::Inspect(const Inspection& inspection,
                                                   const CallOptions& call) {
  const auto json = [](const auto& answer) -> absl::StatusOr<std::string> {
    if (!answer.ok()) return answer.status();
    return client_internal::JsonFromWire(*answer);
  };
  switch (inspection.subject) {
    case Inspection::Subject::kStatus: {
      constexpr int32_t kMost = 1000;
      v1::GetStatusRequest request;
      request.set_max_jobs(kMost);
      request.set_max_plans(kMost);
      return json(impl_->Call("GetStatus", &v1::PlannerService::Stub::GetStatus,
                              request, call));
    }
    case Inspection::Subject::kJob: {
      v1::GetJobRequest request;
      request.set_name(inspection.job);
      return json(impl_->Call("GetJob", &v1::PlannerService::Stub::GetJob,
                              request, call));
    }
    case Inspection::Subject::kCalibrations: {
      v1::ListCalibrationsRequest request;
      request.set_job(inspection.job);
      return json(impl_->Call("ListCalibrations",
                              &v1::PlannerService::Stub::ListCalibrations,
                              request, call));
    }
    case Inspection::Subject::kRankPlan: {
      v1::GetRankPlanRequest request;
      request.set_job(inspection.job);
      request.set_step(inspection.step);
      request.set_attempt(inspection.attempt);
      request.set_rank(inspection.rank);
      return json(impl_->Call("GetRankPlan",
                              &v1::PlannerService::Stub::GetRankPlan, request,
                              call));
    }
  }
  return absl::InternalError("unknown subject of an inspection");
}

absl::StatusOr<std::unique_ptr<PlanStream>> PlannerClient::StreamPlans(
    const StreamOptions& options) {
  absl::Status process = impl_->connection()->CheckProcess();
  if (!process.ok()) return process;
  if (options.job.empty()) return client_internal::InvalidField("job", "empty");
  absl::StatusOr<v1::PlanBatchRequest> common =
      client_internal::BatchToWire({.job = options.job,
                                    .generation = options.generation,
                                    .policy = options.policy});
  if (!common.ok()) return common.status();
  absl::StatusOr<client_internal::CallIdentity> identity =
      client_internal::NewIdentity(options.traceparent);
  if (!identity.ok()) return identity.status();
  return std::unique_ptr<PlanStream>(
      new PlanStream(std::make_unique<PlanStream::Impl>(
          impl_->connection(), *std::move(identity), *std::move(common))));
}

}  // namespace skrull
