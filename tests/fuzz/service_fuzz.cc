// Calls of a real daemon in this process, over a real connection: the first
// byte picks the method, the rest is the request. No call may be answered with
// a code that stands for a mistake of ours, and a batch that is planned is
// planned legally, and to the same bytes again. Seeds: corpus/service, in text
// form.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "skrull/planner/plan_checker.h"
#include "skrull/server/clock.h"
#include "skrull/server/convert.h"
#include "skrull/server/options.h"
#include "skrull/server/planner_server.h"
#include "skrull/v1/planner_service.pb.h"

namespace {

// tests/fuzz/run writes the first byte of the seeds by this order.
constexpr const char* kMethods[] = {
    "CreateJob",   "GetJob",     "ListJobs",         "DeleteJob",  "PlanBatch",
    "GetRankPlan", "ReportStep", "ListCalibrations", "Rendezvous", "GetStatus"};
constexpr size_t kCreateJob = 0;
constexpr size_t kPlanBatch = 4;
// These wait, for max_wait_seconds, for others.
constexpr size_t kGetRankPlan = 5;
constexpr size_t kRendezvous = 8;

[[noreturn]] void Broken(const std::string& what, const grpc::Status& status) {
  std::fprintf(stderr, "broken promise: %s: %d %s\n", what.c_str(),
               static_cast<int>(status.error_code()),
               status.error_message().c_str());
  std::abort();
}

// Small limits: a large request costs time and meets no other code.
skrull::ServerOptions Options() {
  skrull::ServerOptions options;
  options.listen_address =
      "unix:/tmp/skrull-fuzz-" + std::to_string(::getpid());
  options.metrics_address = "";
  options.kept_steps = 8;
  options.max_jobs = 16;
  options.max_ranks = 256;
  options.max_lengths = 512;
  options.max_wait_seconds = 0.001;
  options.planning_threads = 1;
  options.log_level = skrull::LogLevel::kError;
  return options;
}

// The daemon and a connection to it. Lives as long as the process.
class Service {
 public:
  Service() {
    auto server =
        skrull::PlannerServer::Create(Options(), skrull::Clock::Real());
    if (!server.ok() || !(*server)->Start().ok()) std::abort();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(),
                                   grpc::InsecureChannelCredentials());
    stub_ = std::make_unique<grpc::GenericStub>(channel_);
    job_.set_name("run");  // the name that the seeds use
    skrull::v1::JobSpec& spec = *job_.mutable_spec();
    spec.mutable_model()->set_hidden_size(64);
    spec.mutable_model()->set_layer_count(2);
    spec.mutable_model()->set_attention_head_count(4);
    spec.mutable_parallelism()->set_dp_size(2);
    spec.mutable_parallelism()->set_cp_size(4);
    spec.mutable_memory()->set_bucket_size_tokens(10);
  }

  // Registers a job, unless it is registered, so that calls find one.
  void KeepJob() {
    std::string answer;
    (void)Call(kCreateJob, job_.SerializeAsString(), &answer);
  }

  grpc::Status Call(size_t method, const std::string& request,
                    std::string* answer) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(15));
    grpc::CompletionQueue queue;
    const grpc::Slice slice(request);
    const auto call = stub_->PrepareUnaryCall(
        &context, std::string("/skrull.v1.PlannerService/") + kMethods[method],
        grpc::ByteBuffer(&slice, 1), &queue);
    grpc::ByteBuffer bytes;
    grpc::Status status;
    void* tag = nullptr;
    bool finished = false;
    call->StartCall();
    call->Finish(&bytes, &status, nullptr);
    queue.Next(&tag, &finished);
    queue.Shutdown();
    while (queue.Next(&tag, &finished)) {
    }
    std::vector<grpc::Slice> slices;
    answer->clear();
    if (status.ok() && bytes.Dump(&slices).ok()) {
      for (const grpc::Slice& part : slices) {
        answer->append(reinterpret_cast<const char*>(part.begin()),
                       part.size());
      }
    }
    return status;
  }

 private:
  std::unique_ptr<skrull::PlannerServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::GenericStub> stub_;
  skrull::v1::CreateJobRequest job_;
};

// What an answered what-if request promises of its plan.
void CheckAnswer(Service& service, const std::string& bytes,
                 const std::string& answer) {
  skrull::v1::PlanBatchRequest request;
  skrull::v1::PlanBatchResponse response;
  if (!request.ParseFromString(bytes) || !response.ParseFromString(answer)) {
    Broken("an answer to what is no request", grpc::Status::OK);
  }
  if (!request.has_job_spec()) return;
  const auto job = skrull::JobFromProto(request.job_spec());
  const auto plan = skrull::PlanFromProto(response.plan());
  if (!job.ok() || !plan.ok()) {
    Broken("a plan for no job", grpc::Status::OK);
  }
  const std::vector<int64_t> lengths(request.lengths().begin(),
                                     request.lengths().end());
  const auto legal = skrull::CheckPlan(*job, lengths, *plan);
  if (!legal.ok()) Broken("legal: " + legal.ToString(), grpc::Status::OK);
  std::string again;
  const grpc::Status status = service.Call(kPlanBatch, bytes, &again);
  skrull::v1::PlanBatchResponse second;
  if (!status.ok() || !second.ParseFromString(again) ||
      skrull::CanonicalBytes(second.plan()) !=
          skrull::CanonicalBytes(response.plan())) {
    Broken("the same bytes again", status);
  }
}

// gRPC itself answers bytes that are no message with INTERNAL, without details.
bool IsOurMistake(size_t method, const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::INTERNAL:
      return !status.error_details().empty();
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return method != kGetRankPlan && method != kRendezvous;
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::DATA_LOSS:
    case grpc::StatusCode::UNAVAILABLE:
      return true;
    default:
      return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Service* const service = new Service();
  if (size == 0 || data[0] >= std::size(kMethods)) return 0;
  const size_t method = data[0];
  const std::string request(reinterpret_cast<const char*>(data) + 1, size - 1);
  service->KeepJob();
  std::string answer;
  const grpc::Status status = service->Call(method, request, &answer);
  if (status.ok() && method == kPlanBatch) {
    CheckAnswer(*service, request, answer);
  }
  if (IsOurMistake(method, status)) Broken(kMethods[method], status);
  return 0;
}
