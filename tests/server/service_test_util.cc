#include "skrull/tests/server/service_test_util.h"

#include <stdexcept>
#include <thread>

#include "skrull/server/tsan.h"

namespace skrull::testing {
namespace {

void SetTimeout(grpc::ClientContext* context,
                std::chrono::milliseconds timeout = std::chrono::minutes(2)) {
  context->set_deadline(std::chrono::system_clock::now() + timeout);
}

}  // namespace

v1::JobSpec SmallSpec(int dp_size, int cp_size, int64_t bucket) {
  v1::JobSpec spec;
  spec.mutable_model()->set_hidden_size(64);
  spec.mutable_model()->set_layer_count(2);
  spec.mutable_model()->set_attention_head_count(4);
  spec.mutable_parallelism()->set_dp_size(dp_size);
  spec.mutable_parallelism()->set_cp_size(cp_size);
  spec.mutable_memory()->set_bucket_size_tokens(bucket);
  return spec;
}

v1::PlanBatchRequest Batch(const std::string& job, int64_t step,
                           const std::vector<int64_t>& lengths) {
  v1::PlanBatchRequest request;
  request.set_job(job);
  request.set_step(step);
  request.mutable_lengths()->Add(lengths.begin(), lengths.end());
  return request;
}

v1::ErrorDetail DetailOf(const grpc::Status& status) {
  v1::RpcStatus message;
  v1::ErrorDetail detail;
  if (message.ParseFromString(status.error_details()) &&
      message.details_size() == 1 &&
      message.code() == static_cast<int>(status.error_code())) {
    message.details(0).UnpackTo(&detail);
  }
  return detail;
}

bool Eventually(const std::function<bool()>& condition) {
  const auto limit =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

Client::Client(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  channel_ = grpc::CreateCustomChannel(
      address, grpc::InsecureChannelCredentials(), arguments);
  stub_ = v1::PlannerService::NewStub(channel_);
}

grpc::Status Client::CreateJob(const std::string& name, const v1::JobSpec& spec,
                               int64_t generation, v1::Job* job) {
  grpc::ClientContext context;
  SetTimeout(&context);
  v1::CreateJobRequest request;
  request.set_name(name);
  *request.mutable_spec() = spec;
  request.set_generation(generation);
  v1::Job unused;
  return stub_->CreateJob(&context, request, job == nullptr ? &unused : job);
}

grpc::Status Client::DeleteJob(const std::string& name, int64_t generation) {
  grpc::ClientContext context;
  SetTimeout(&context);
  v1::DeleteJobRequest request;
  request.set_name(name);
  request.set_generation(generation);
  v1::DeleteJobResponse response;
  return stub_->DeleteJob(&context, request, &response);
}

grpc::Status Client::Plan(const v1::PlanBatchRequest& request,
                          v1::PlanBatchResponse* response) {
  grpc::ClientContext context;
  SetTimeout(&context);
  v1::PlanBatchResponse unused;
  return stub_->PlanBatch(&context, request,
                          response == nullptr ? &unused : response);
}

grpc::Status Client::RankPlan(const std::string& job, int64_t step, int rank,
                              v1::RankPlan* response, int64_t generation) {
  grpc::ClientContext context;
  SetTimeout(&context);
  v1::GetRankPlanRequest request;
  request.set_job(job);
  request.set_step(step);
  request.set_rank(rank);
  request.set_generation(generation);
  v1::RankPlan unused;
  return stub_->GetRankPlan(&context, request,
                            response == nullptr ? &unused : response);
}

std::unique_ptr<Pending<v1::PlanBatchResponse>> Client::StartPlan(
    const v1::PlanBatchRequest& request, std::chrono::milliseconds timeout) {
  auto pending = std::make_unique<Pending<v1::PlanBatchResponse>>();
  SetTimeout(&pending->context, timeout);
  // gRPC reads the request before the call returns.
  TsanRelease(pending.get());
  stub_->async()->PlanBatch(&pending->context, &request, &pending->response,
                            [raw = pending.get()](const grpc::Status& status) {
                              TsanAcquire(raw);
                              raw->promise.set_value(status);
                            });
  return pending;
}

std::unique_ptr<Pending<v1::RankPlan>> Client::StartRankPlan(
    const std::string& job, int64_t step, int rank,
    std::chrono::milliseconds timeout) {
  auto pending = std::make_unique<Pending<v1::RankPlan>>();
  SetTimeout(&pending->context, timeout);
  v1::GetRankPlanRequest request;
  request.set_job(job);
  request.set_step(step);
  request.set_rank(rank);
  TsanRelease(pending.get());
  stub_->async()->GetRankPlan(
      &pending->context, &request, &pending->response,
      [raw = pending.get()](const grpc::Status& status) {
        TsanAcquire(raw);
        raw->promise.set_value(status);
      });
  return pending;
}

std::unique_ptr<Pending<v1::PlanBatchResponse>> Client::StartSlowPlan(
    int64_t step) {
  // One micro-batch a sequence, each timed on every one of 65,536 ranks.
  const grpc::Status created = CreateJob("slow", SmallSpec(1, 65536, 1000));
  if (!created.ok()) throw std::runtime_error(created.error_message());
  v1::PlanBatchRequest request =
      Batch("slow", step, std::vector<int64_t>(1000, 1000));
  request.set_policy(v1::POLICY_STATIC_CP);
  return StartPlan(request);
}

}  // namespace skrull::testing
