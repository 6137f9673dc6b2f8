// Jobs, reports, health and reflection through a real daemon.
#include <catch2/catch.hpp>
#include <limits>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "skrull/tests/server/service_test_util.h"

namespace skrull::testing {
namespace {

TEST_CASE("Service: another spec under a name needs a new generation",
          "[server][service]") {  // case 30
  Daemon daemon;
  Client client(daemon.address());
  v1::Job job;
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100), 0, &job).ok());
  CHECK(job.generation() == 1);
  CHECK(job.create_time().seconds() > 0);
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100), 0, &job).ok());
  CHECK(job.generation() == 1);

  const grpc::Status exists = client.CreateJob("run", SmallSpec(4, 2, 100));
  CHECK(exists.error_code() == grpc::StatusCode::ALREADY_EXISTS);
  CHECK(DetailOf(exists).reason() == "JOB_EXISTS");
  // The refusal changed nothing: rank 7 is still out of the pool.
  CHECK(DetailOf(client.RankPlan("run", 1, 7)).field() == "rank");

  REQUIRE(client.Plan(Batch("run", 1, {1, 2})).ok());
  REQUIRE(client.CreateJob("run", SmallSpec(4, 2, 100), 2, &job).ok());
  CHECK(job.generation() == 2);
  v1::PlanBatchRequest old = Batch("run", 2, {1, 2});
  old.set_generation(1);
  const grpc::Status refused = client.Plan(old);
  CHECK(refused.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(DetailOf(refused).reason() == "GENERATION_MISMATCH");
  CHECK(DetailOf(client.RankPlan("run", 1, 0, nullptr, 1)).reason() ==
        "GENERATION_MISMATCH");
  CHECK(DetailOf(client.CreateJob("run", SmallSpec(2, 2, 100), 1)).reason() ==
        "GENERATION_MISMATCH");
  // The old generation's plan of step 1 is gone: another batch may have it.
  v1::PlanBatchRequest anew = Batch("run", 1, {3, 4});
  anew.set_generation(2);
  CHECK(client.Plan(anew).ok());
}

TEST_CASE("Service: bad jobs are refused, naming the field",
          "[server][service]") {
  Daemon daemon({"--max_jobs=2", "--max_ranks=100"});
  Client client(daemon.address());
  for (const char* name : {"", "-a", "a b", "a/b"}) {
    const grpc::Status status = client.CreateJob(name, SmallSpec(1, 1, 10));
    INFO("name '" << name << "'");
    CHECK_FALSE(status.ok());
  }
  v1::JobSpec spec = SmallSpec(1, 1, 10);
  spec.mutable_parallelism()->set_cp_size(0);
  CHECK(DetailOf(client.CreateJob("run", spec)).field() ==
        "parallelism.cp_size");
  spec = SmallSpec(1, 1, 10);
  spec.mutable_cost()->set_seconds_per_flop(
      std::numeric_limits<double>::quiet_NaN());
  CHECK(DetailOf(client.CreateJob("run", spec)).field() ==
        "cost.seconds_per_flop");
  CHECK(DetailOf(client.CreateJob("run", SmallSpec(1, 1, 10), -1)).field() ==
        "generation");
  const grpc::Status ranks = client.CreateJob("run", SmallSpec(101, 1, 10));
  CHECK(ranks.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(DetailOf(ranks).limit() == 100);

  REQUIRE(client.CreateJob("a", SmallSpec(1, 1, 10)).ok());
  REQUIRE(client.CreateJob("b", SmallSpec(1, 1, 10)).ok());
  const grpc::Status third = client.CreateJob("c", SmallSpec(1, 1, 10));
  CHECK(third.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(DetailOf(third).reason() == "LIMIT_EXCEEDED");
  CHECK(daemon.Metric("skrull_jobs") == 2);
  REQUIRE(client.DeleteJob("a").ok());
  CHECK(daemon.Metric("skrull_jobs") == 1);
  CHECK(client.CreateJob("c", SmallSpec(1, 1, 10)).ok());
  CHECK(DetailOf(client.DeleteJob("a")).reason() == "JOB_NOT_FOUND");
  CHECK(DetailOf(client.DeleteJob("c", 5)).reason() == "GENERATION_MISMATCH");
}

TEST_CASE("Service: jobs are got, and listed by name in pages",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  for (const char* name : {"d", "b", "e", "a", "c"}) {
    REQUIRE(client.CreateJob(name, SmallSpec(1, 1, 10)).ok());
  }
  grpc::ClientContext get_context;
  v1::GetJobRequest get;
  get.set_name("c");
  v1::Job job;
  REQUIRE(client.stub().GetJob(&get_context, get, &job).ok());
  CHECK(job.name() == "c");
  CHECK(job.owner().empty());
  CHECK(job.calibration_epoch() == 0);
  CHECK(job.calibration().cause() == v1::CALIBRATION_CAUSE_REGISTERED);
  CHECK(job.calibrated_spec().SerializeAsString() ==
        job.spec().SerializeAsString());
  CHECK(job.spec().SerializeAsString() ==
        SmallSpec(1, 1, 10).SerializeAsString());

  std::string names;
  v1::ListJobsRequest request;
  request.set_page_size(2);
  int pages = 0;
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse page;
    REQUIRE(client.stub().ListJobs(&context, request, &page).ok());
    CHECK(page.jobs_size() <= 2);
    for (const v1::Job& listed : page.jobs()) names += listed.name();
    request.set_page_token(page.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  CHECK(names == "abcde");
  CHECK(pages == 3);

  for (const int size : {-1, 1001}) {
    grpc::ClientContext context;
    v1::ListJobsRequest bad;
    bad.set_page_size(size);
    v1::ListJobsResponse page;
    CHECK(DetailOf(client.stub().ListJobs(&context, bad, &page)).field() ==
          "page_size");
  }
  grpc::ClientContext context;
  v1::ListJobsRequest bad;
  bad.set_page_token("?not a token?");
  v1::ListJobsResponse page;
  CHECK(DetailOf(client.stub().ListJobs(&context, bad, &page)).field() ==
        "page_token");
}

TEST_CASE("Service: step reports are checked, stored and counted",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100)).ok());
  v1::ReportStepRequest good;
  good.set_job("run");
  good.mutable_report()->set_step(3);
  good.mutable_report()->set_rank(3);
  good.mutable_report()->set_outcome(v1::STEP_OUTCOME_OUT_OF_MEMORY);
  good.mutable_report()->mutable_step_time()->set_seconds(2);
  const auto report = [&](const v1::ReportStepRequest& request) {
    grpc::ClientContext context;
    v1::ReportStepResponse response;
    return client.stub().ReportStep(&context, request, &response);
  };
  REQUIRE(report(good).ok());
  CHECK(daemon.Metric("skrull_step_reports_total{outcome=\"STEP_OUTCOME_OUT_"
                      "OF_MEMORY\"}") == 1);
  const std::vector<
      std::pair<const char*, std::function<void(v1::StepReport*)>>>
      cases = {
          {"report.step", [](auto* r) { r->set_step(-1); }},
          {"report.attempt", [](auto* r) { r->set_attempt(-1); }},
          {"report.rank", [](auto* r) { r->set_rank(4); }},
          {"report.rank", [](auto* r) { r->set_rank(-1); }},
          {"report.outcome", [](auto* r) { r->clear_outcome(); }},
          {"report.outcome",
           [](auto* r) { r->set_outcome(static_cast<v1::StepOutcome>(9)); }},
          {"report.step_time",
           [](auto* r) { r->mutable_step_time()->set_seconds(-1); }},
          {"report.attention_time",
           [](auto* r) { r->mutable_attention_time()->set_nanos(-1); }},
          {"report.exchange_time",
           [](auto* r) {
             r->mutable_exchange_time()->set_nanos(1'000'000'000);
           }},
          {"report.peak_bytes", [](auto* r) { r->set_peak_bytes(-1); }},
      };
  for (const auto& [field, change] : cases) {
    v1::ReportStepRequest bad = good;
    change(bad.mutable_report());
    const grpc::Status status = report(bad);
    INFO(field << ": " << status.error_message());
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(DetailOf(status).field() == field);
  }
  v1::ReportStepRequest other = good;
  other.set_job("other");
  CHECK(DetailOf(report(other)).reason() == "JOB_NOT_FOUND");
  other = good;
  other.set_generation(9);
  CHECK(DetailOf(report(other)).reason() == "GENERATION_MISMATCH");
}

// Sends `request` to a method that has no stub here.
grpc::Status RawCall(Client* client, const char* method,
                     const std::string& request, std::string* response) {
  const grpc::Slice slice(request);
  grpc::ClientContext context;
  grpc::ByteBuffer out;
  const grpc::Status status =
      grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
          client->channel().get(),
          grpc::internal::RpcMethod(method,
                                    grpc::internal::RpcMethod::NORMAL_RPC),
          &context, grpc::ByteBuffer(&slice, 1), &out);
  grpc::Slice joined;
  if (status.ok() && out.DumpToSingleSlice(&joined).ok()) {
    response->assign(reinterpret_cast<const char*>(joined.begin()),
                     joined.size());
  }
  return status;
}

TEST_CASE("Service: answers health checks and reflection",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  const std::string name = "skrull.v1.PlannerService";
  // HealthCheckRequest{service}: field 1; HealthCheckResponse{SERVING}: 1 = 1.
  for (const std::string& service : {std::string(), name}) {
    const std::string request =
        service.empty()
            ? ""
            : std::string("\x0a") + static_cast<char>(service.size()) + service;
    std::string response;
    REQUIRE(RawCall(&client, "/grpc.health.v1.Health/Check", request, &response)
                .ok());
    CHECK(response == std::string("\x08\x01"));
  }

  // ServerReflectionRequest{list_services: ""}: field 7, on a stream.
  const auto list_services = [](Client* to) {
    grpc::GenericStub stub(to->channel());
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    void* tag = nullptr;
    bool ok = false;
    const auto call = stub.PrepareCall(
        &context,
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        &queue);
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    const grpc::Slice slice(std::string("\x3a\x00", 2));
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    queue.Next(&tag, &ok);
    grpc::ByteBuffer response;
    call->Read(&response, nullptr);
    queue.Next(&tag, &ok);
    std::string text;
    grpc::Slice joined;
    if (ok && response.DumpToSingleSlice(&joined).ok()) {
      text.assign(reinterpret_cast<const char*>(joined.begin()), joined.size());
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    queue.Shutdown();
    return text;
  };
  CHECK(list_services(&client).find(name) != std::string::npos);

  Daemon without({"--reflection=false"});
  Client other(without.address());
  CHECK(list_services(&other).empty());
}

}  // namespace
}  // namespace skrull::testing
