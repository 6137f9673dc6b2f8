#include "skrull/tests/client/fake_planner.h"

#include <stdexcept>

namespace skrull::testing {
namespace {

grpc::Status NotSet() {
  return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "not set by the test");
}

}  // namespace

FakePlanner::FakePlanner() {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) throw std::runtime_error("fake planner: no port");
  address_ = "127.0.0.1:" + std::to_string(port);
}

FakePlanner::~FakePlanner() {
  server_->Shutdown(std::chrono::system_clock::now());
}

grpc::Status FakePlanner::GetJob(grpc::ServerContext*, const v1::GetJobRequest*,
                                 v1::Job* job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return get_job ? get_job(job) : NotSet();
}

grpc::Status FakePlanner::ListJobs(grpc::ServerContext*,
                                   const v1::ListJobsRequest* request,
                                   v1::ListJobsResponse* response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return list_jobs ? list_jobs(*request, response) : NotSet();
}

grpc::Status FakePlanner::DeleteJob(grpc::ServerContext*,
                                    const v1::DeleteJobRequest*,
                                    v1::DeleteJobResponse*) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return delete_job ? delete_job() : NotSet();
}

grpc::Status FakePlanner::PlanBatch(grpc::ServerContext* context,
                                    const v1::PlanBatchRequest* request,
                                    v1::PlanBatchResponse* response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return plan_batch ? plan_batch(context, *request, response) : NotSet();
}

grpc::Status FakePlanner::StreamPlans(grpc::ServerContext* context,
                                      StreamOfPlans* stream) {
  decltype(stream_plans) answer;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    answer = stream_plans;
  }
  return answer ? answer(context, stream) : NotSet();
}

grpc::Status FakePlanner::ReportStep(grpc::ServerContext*,
                                     const v1::ReportStepRequest* request,
                                     v1::ReportStepResponse*) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return report_step ? report_step(*request) : NotSet();
}

grpc::Status FakePlanner::GetRankPlan(grpc::ServerContext*,
                                      const v1::GetRankPlanRequest* request,
                                      v1::RankPlan* plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return get_rank_plan ? get_rank_plan(*request, plan) : NotSet();
}

grpc::Status FakePlanner::ListCalibrations(
    grpc::ServerContext*, const v1::ListCalibrationsRequest* request,
    v1::ListCalibrationsResponse* response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return list_calibrations ? list_calibrations(*request, response) : NotSet();
}

grpc::Status FakePlanner::GetStatus(grpc::ServerContext*,
                                    const v1::GetStatusRequest* request,
                                    v1::ServerStatus* status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return get_status ? get_status(*request, status) : NotSet();
}

grpc::Status RefusalStatus(grpc::StatusCode code, const std::string& message,
                           const std::string& reason,
                           double retry_after_seconds) {
  v1::ErrorDetail detail;
  detail.set_reason(reason);
  if (retry_after_seconds >= 0) {
    detail.mutable_retry_after()->set_nanos(
        static_cast<int32_t>(retry_after_seconds * 1e9));
  }
  v1::RpcStatus status;
  status.set_code(code);
  status.set_message(message);
  status.add_details()->PackFrom(detail);
  return grpc::Status(code, message, status.SerializeAsString());
}

v1::PlanBatchResponse AnswerTo(const v1::PlanBatchRequest& request) {
  v1::PlanBatchResponse response;
  v1::Plan* plan = response.mutable_plan();
  plan->set_job(request.job());
  plan->set_step(request.step());
  plan->set_attempt(request.attempt());
  plan->set_policy(v1::POLICY_SKRULL);
  v1::MicroBatch* micro_batch = plan->add_micro_batches();
  for (int i = 0; i < request.lengths_size(); ++i) {
    v1::Placement* placement = micro_batch->add_placements();
    placement->set_sequence(i);
    placement->set_token_count(static_cast<int32_t>(request.lengths(i)));
    placement->set_degree(1);
    micro_batch->set_token_count(micro_batch->token_count() +
                                 request.lengths(i));
  }
  response.set_committed(true);
  return response;
}

ClientOptions QuickOptions(const std::string& address) {
  ClientOptions options;
  options.address = address;
  options.unreachable_after = std::chrono::milliseconds(500);
  options.initial_backoff = std::chrono::milliseconds(1);
  options.max_backoff = std::chrono::milliseconds(20);
  return options;
}

}  // namespace skrull::testing
