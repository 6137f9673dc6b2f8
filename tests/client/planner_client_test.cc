// The client against a service whose answers the test decides.
#include "skrull/client/planner_client.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <limits>

#include "grpcpp/health_check_service_interface.h"
#include "skrull/tests/client/fake_planner.h"

namespace skrull {
namespace {

using std::chrono::milliseconds;
using testing::FakePlanner;
using testing::QuickOptions;
using testing::RefusalStatus;

std::unique_ptr<PlannerClient> ClientOf(const ClientOptions& options) {
  absl::StatusOr<std::unique_ptr<PlannerClient>> client =
      PlannerClient::Create(options);
  INFO(client.status());
  REQUIRE(client.ok());
  return *std::move(client);
}

const PlanRequest kRequest = {.job = "run7",
                              .generation = 3,
                              .step = 12,
                              .attempt = 1,
                              .lengths = {512, 70, 33},
                              .policy = "POLICY_STATIC_CP"};

TEST_CASE("PlannerClient: sends the request and returns the plan", "[client]") {
  FakePlanner planner;
  v1::PlanBatchRequest seen;
  planner.plan_batch = [&](auto*, const auto& request, auto* response) {
    seen = request;
    *response = testing::AnswerTo(request);
    response->mutable_plan()->set_digest("abc");
    response->mutable_plan()->mutable_summary()->set_roll_back_count(4);
    response->mutable_plan()->mutable_summary()->set_dp_imbalance(0.25);
    response->mutable_planning_time()->set_nanos(2'000'000);
    return grpc::Status::OK;
  };
  const absl::StatusOr<PlanResult> plan =
      ClientOf(QuickOptions(planner.address()))->PlanBatch(kRequest);
  REQUIRE(plan.ok());
  const std::lock_guard<std::mutex> lock(planner.mutex());
  CHECK(seen.job() == "run7");
  CHECK(seen.generation() == 3);
  CHECK(seen.step() == 12);
  CHECK(seen.attempt() == 1);
  CHECK(std::vector<int64_t>(seen.lengths().begin(), seen.lengths().end()) ==
        kRequest.lengths);
  CHECK(seen.policy() == v1::POLICY_STATIC_CP);
  CHECK(plan->job == "run7");
  CHECK(plan->step == 12);
  CHECK(plan->digest == "abc");
  CHECK(plan->policy == "POLICY_SKRULL");
  CHECK(plan->figures.roll_back_count == 4);
  CHECK(plan->figures.dp_imbalance == 0.25);
  CHECK(plan->planning_seconds == 0.002);
  CHECK(plan->committed);
  v1::Plan wire;
  REQUIRE(wire.ParseFromString(plan->plan_bytes));
  CHECK(wire.micro_batches(0).placements_size() == 3);
}

// The value of a metadata key that a call came with; empty if it came without.
std::string MetadataOf(const grpc::ServerContext& context,
                       const std::string& key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return "";
  return std::string(found->second.data(), found->second.size());
}

TEST_CASE("PlannerClient: names the request in errors as it did to the daemon",
          "[client]") {
  FakePlanner planner;
  std::vector<std::string> ids;
  std::vector<std::string> traces;
  planner.plan_batch = [&](auto* context, const auto&, auto*) {
    ids.push_back(MetadataOf(*context, "x-request-id"));
    traces.push_back(MetadataOf(*context, "traceparent"));
    return ids.size() < 3
               ? RefusalStatus(grpc::UNAVAILABLE, "down", "DRAINING")
               : RefusalStatus(grpc::INVALID_ARGUMENT, "no", "FIELD_INVALID");
  };
  const auto client = ClientOf(QuickOptions(planner.address()));
  const std::string trace =
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const absl::Status status =
      client->PlanBatch(kRequest, {.traceparent = trace}).status();
  CHECK(GetRefusalDetail(status)->reason == "FIELD_INVALID");
  CHECK_FALSE(client->PlanBatch(kRequest).ok());
  const std::lock_guard<std::mutex> lock(planner.mutex());
  REQUIRE(ids.size() == 4);
  // Attempts of one call have one id; the next call has another.
  CHECK(ids[0].size() == 16);
  CHECK(ids[1] == ids[0]);
  CHECK(ids[2] == ids[0]);
  CHECK(ids[3] != ids[0]);
  CHECK(status.message() == "no (request " + ids[0] + ")");
  CHECK(traces == std::vector<std::string>{trace, trace, trace, ""});
}

TEST_CASE("PlannerClient: a trace context that no header holds is refused",
          "[client]") {
  FakePlanner planner;
  std::atomic<int> calls = 0;
  planner.get_job = [&](v1::Job*) {
    ++calls;
    return grpc::Status::OK;
  };
  const auto client = ClientOf(QuickOptions(planner.address()));
  for (const std::string& bad :
       {std::string("a\nb"), std::string("\xc3\xa9"), std::string(513, 'a')}) {
    const absl::Status status =
        client->GetJob("run7", {.traceparent = bad}).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK(GetRefusalDetail(status)->field == "traceparent");
    const absl::Status stream =
        client->StreamPlans({.job = "run7", .traceparent = bad}).status();
    CHECK(GetRefusalDetail(stream)->field == "traceparent");
  }
  CHECK(client->GetJob("run7", {.traceparent = std::string(512, 'a')}).ok());
  CHECK(calls == 1);
}

TEST_CASE("PlannerClient: retries UNAVAILABLE until there is an answer",
          "[client]") {
  FakePlanner planner;
  std::atomic<int> calls = 0;
  planner.get_job = [&](v1::Job* job) {
    job->set_name("run7");
    return ++calls < 4 ? RefusalStatus(grpc::UNAVAILABLE, "down", "DRAINING")
                       : grpc::Status::OK;
  };
  const absl::StatusOr<JobInfo> job =
      ClientOf(QuickOptions(planner.address()))->GetJob("run7");
  REQUIRE(job.ok());
  CHECK(job->name == "run7");
  CHECK(calls == 4);
}

TEST_CASE("PlannerClient: retries RESOURCE_EXHAUSTED only with a hint",
          "[client]") {
  FakePlanner planner;
  std::atomic<int> calls = 0;
  double hint = 0.001;
  planner.get_job = [&](v1::Job*) {
    return ++calls < 3 ? RefusalStatus(grpc::RESOURCE_EXHAUSTED, "queue full",
                                       "QUEUE_FULL", hint)
                       : grpc::Status::OK;
  };
  const auto client = ClientOf(QuickOptions(planner.address()));
  CHECK(client->GetJob("run7").ok());
  CHECK(calls == 3);

  calls = 0;
  {
    const std::lock_guard<std::mutex> lock(planner.mutex());
    hint = -1;
  }
  const absl::Status status = client->GetJob("run7").status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK_THAT(std::string(status.message()),
             Catch::StartsWith("queue full (request "));
  CHECK(calls == 1);
}

TEST_CASE("PlannerClient: a hint beyond the deadline ends the call",
          "[client]") {
  FakePlanner planner;
  std::atomic<int> calls = 0;
  planner.get_job = [&](v1::Job*) {
    ++calls;
    return RefusalStatus(grpc::RESOURCE_EXHAUSTED, "queue full", "QUEUE_FULL",
                         0.9);
  };
  const absl::Status status =
      ClientOf(QuickOptions(planner.address()))
          ->GetJob("run7", {.timeout = milliseconds(500)})
          .status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK(GetRefusalDetail(status)->retry_after_seconds == 0.9);
  CHECK(calls == 1);
}

TEST_CASE("PlannerClient: never retries another code", "[client]") {
  const grpc::StatusCode code =
      GENERATE(grpc::CANCELLED, grpc::UNKNOWN, grpc::INVALID_ARGUMENT,
               grpc::DEADLINE_EXCEEDED, grpc::NOT_FOUND, grpc::ALREADY_EXISTS,
               grpc::PERMISSION_DENIED, grpc::FAILED_PRECONDITION,
               grpc::ABORTED, grpc::OUT_OF_RANGE, grpc::UNIMPLEMENTED,
               grpc::INTERNAL, grpc::DATA_LOSS, grpc::UNAUTHENTICATED);
  FakePlanner planner;
  std::atomic<int> calls = 0;
  planner.get_job = [&](v1::Job*) {
    ++calls;
    return RefusalStatus(code, "no", "SOME_REASON");
  };
  const absl::Status status =
      ClientOf(QuickOptions(planner.address()))->GetJob("run7").status();
  CHECK(static_cast<int>(status.code()) == static_cast<int>(code));
  CHECK_THAT(std::string(status.message()), Catch::StartsWith("no (request "));
  CHECK(calls == 1);
}

TEST_CASE("PlannerClient: errors keep their detail", "[client]") {
  FakePlanner planner;
  planner.get_job = [&](v1::Job*) {
    v1::ErrorDetail detail;
    detail.set_reason("SEQUENCE_TOO_LONG");
    detail.set_field("lengths");
    detail.add_indices(3);
    detail.add_indices(9);
    detail.set_limit(20);
    v1::RpcStatus status;
    status.set_code(grpc::FAILED_PRECONDITION);
    status.add_details()->PackFrom(detail);
    return grpc::Status(grpc::FAILED_PRECONDITION, "too long",
                        status.SerializeAsString());
  };
  const absl::Status status =
      ClientOf(QuickOptions(planner.address()))->GetJob("run7").status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(GetRefusalDetail(status) == RefusalDetail{.reason = "SEQUENCE_TOO_LONG",
                                                  .field = "lengths",
                                                  .indices = {3, 9},
                                                  .limit = 20});
}

TEST_CASE("PlannerClient: a call ends at its deadline", "[client]") {
  FakePlanner planner;
  planner.plan_batch = [](grpc::ServerContext* context, const auto&, auto*) {
    while (!context->IsCancelled()) ::usleep(1000);
    return grpc::Status::CANCELLED;
  };
  const auto client = ClientOf(QuickOptions(planner.address()));
  CHECK(absl::IsDeadlineExceeded(
      client->PlanBatch(kRequest, {.timeout = milliseconds(50)}).status()));
  ClientOptions options = QuickOptions(planner.address());
  options.timeout = milliseconds(50);
  CHECK(absl::IsDeadlineExceeded(
      ClientOf(options)->PlanBatch(kRequest).status()));
}

TEST_CASE("PlannerClient: a dead address fails within its patience",
          "[client]") {
  // A port that refuses: bound, and not listened on.
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&name), size) == 0);
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0);
  const std::string address =
      "127.0.0.1:" + std::to_string(ntohs(name.sin_port));

  const auto client = ClientOf(QuickOptions(address));
  // Without the limit on patience this would end as DEADLINE_EXCEEDED, or not
  // before the test's own time is up.
  const absl::Status status =
      client->GetJob("run7", {.timeout = std::chrono::hours(24)}).status();
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains(address));
  CHECK_FALSE(GetRefusalDetail(status));

  const auto stream = client->StreamPlans({.job = "run7"});
  REQUIRE(stream.ok());
  CHECK((*stream)->Send(0, {1}).ok());
  CHECK(absl::IsUnavailable((*stream)->Next(std::chrono::hours(24)).status()));
  CHECK((*stream)->pending() == 1);
  ::close(fd);
}

TEST_CASE("PlannerClient: health is what the service says of itself",
          "[client]") {
  const FakePlanner without_health;
  CHECK(absl::IsUnimplemented(
      ClientOf(QuickOptions(without_health.address()))->CheckHealth()));

  grpc::EnableDefaultHealthCheckService(true);
  v1::PlannerService::Service service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  grpc::EnableDefaultHealthCheckService(false);
  REQUIRE(server != nullptr);
  grpc::HealthCheckServiceInterface& health = *server->GetHealthCheckService();
  const auto client =
      ClientOf(QuickOptions("127.0.0.1:" + std::to_string(port)));
  CHECK(absl::IsNotFound(client->CheckHealth()));  // another service than ours
  health.SetServingStatus("skrull.v1.PlannerService", true);
  CHECK(client->CheckHealth().ok());
  health.SetServingStatus(false);  // as a daemon that drains
  const absl::Status drains = client->CheckHealth();
  CHECK(absl::IsUnavailable(drains));
  CHECK_THAT(std::string(drains.message()), Catch::Contains("takes no calls"));
  CHECK(absl::IsInvalidArgument(
      client->CheckHealth({.timeout = milliseconds(0)})));
}

TEST_CASE("PlannerClient: reads all pages of jobs", "[client]") {
  FakePlanner planner;
  planner.list_jobs = [](const auto& request, auto* response) {
    response->add_jobs()->set_name("job" + request.page_token());
    if (request.page_token().empty()) response->set_next_page_token("2");
    if (request.page_token() == "2") response->set_next_page_token("3");
    return grpc::Status::OK;
  };
  const auto jobs = ClientOf(QuickOptions(planner.address()))->ListJobs();
  REQUIRE(jobs.ok());
  REQUIRE(jobs->size() == 3);
  CHECK((*jobs)[0].name == "job");
  CHECK((*jobs)[2].name == "job3");
}

TEST_CASE("PlannerClient: a delete whose answer was lost is done", "[client]") {
  FakePlanner planner;
  std::atomic<int> calls = 0;
  const auto not_found =
      RefusalStatus(grpc::NOT_FOUND, "no job", "JOB_NOT_FOUND");
  planner.delete_job = [&] {
    return ++calls == 1 ? RefusalStatus(grpc::UNAVAILABLE, "gone", "DRAINING")
                        : not_found;
  };
  const auto client = ClientOf(QuickOptions(planner.address()));
  CHECK(client->DeleteJob("run7").ok());
  CHECK(calls == 2);
  CHECK(absl::IsNotFound(client->DeleteJob("run7")));
}

TEST_CASE("PlannerClient: reports reach the daemon", "[client]") {
  FakePlanner planner;
  v1::ReportStepRequest seen;
  planner.report_step = [&](const v1::ReportStepRequest& request) {
    seen = request;
    return grpc::Status::OK;
  };
  const auto client = ClientOf(QuickOptions(planner.address()));
  StepReport report = {.step = 5,
                       .attempt = 1,
                       .rank = 3,
                       .outcome = StepOutcome::kOutOfMemory,
                       .step_seconds = 1.5,
                       .peak_bytes = int64_t{1} << 40};
  REQUIRE(client->ReportStep("run7", 2, report).ok());
  const std::lock_guard<std::mutex> lock(planner.mutex());
  CHECK(seen.job() == "run7");
  CHECK(seen.generation() == 2);
  CHECK(seen.report().step() == 5);
  CHECK(seen.report().rank() == 3);
  CHECK(seen.report().outcome() == v1::STEP_OUTCOME_OUT_OF_MEMORY);
  CHECK(seen.report().step_time().seconds() == 1);
  CHECK(seen.report().step_time().nanos() == 500'000'000);
  CHECK_FALSE(seen.report().has_attention_time());
  CHECK(seen.report().peak_bytes() == int64_t{1} << 40);

  for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    report.exchange_seconds = bad;
    const absl::Status status = client->ReportStep("run7", 2, report).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK(GetRefusalDetail(status)->field == "report.exchange_time");
  }
}

TEST_CASE("PlannerClient: refuses options out of range, by name", "[client]") {
  struct Row {
    const char* field;
    void (*spoil)(ClientOptions*);
  };
  const Row rows[] = {
      {"address", [](ClientOptions* o) { o->address = ""; }},
      {"timeout", [](ClientOptions* o) { o->timeout = milliseconds(0); }},
      {"timeout",
       [](ClientOptions* o) { o->timeout = std::chrono::hours(25); }},
      {"unreachable_after",
       [](ClientOptions* o) { o->unreachable_after = milliseconds(-1); }},
      {"prefetch_depth", [](ClientOptions* o) { o->prefetch_depth = 0; }},
      {"prefetch_depth", [](ClientOptions* o) { o->prefetch_depth = 1025; }},
      {"initial_backoff",
       [](ClientOptions* o) { o->initial_backoff = milliseconds(1001); }},
      {"max_backoff",
       [](ClientOptions* o) { o->max_backoff = milliseconds(5001); }},
      {"keepalive",
       [](ClientOptions* o) { o->keepalive = milliseconds(19'999); }},
  };
  for (const Row& row : rows) {
    ClientOptions options = {.address = "127.0.0.1:1"};
    row.spoil(&options);
    const absl::Status status = PlannerClient::Create(options).status();
    INFO(row.field << ": " << status);
    CHECK(absl::IsInvalidArgument(status));
    REQUIRE(GetRefusalDetail(status));
    CHECK(GetRefusalDetail(status)->field == row.field);
  }
}

TEST_CASE("PlannerClient: refuses what cannot be sent", "[client]") {
  const auto client = ClientOf(QuickOptions("127.0.0.1:1"));
  const absl::Status text =
      client->CreateJob("run7", "model {\n  hiden_size: 1 }").status();
  CHECK(absl::IsInvalidArgument(text));
  CHECK_THAT(std::string(text.message()), Catch::Contains("line 2, column ") &&
                                              Catch::Contains("hiden_size"));
  const absl::Status policy =
      client->PlanBatch({.job = "run7", .lengths = {1}, .policy = "FAST"})
          .status();
  CHECK(absl::IsInvalidArgument(policy));
  CHECK_THAT(std::string(policy.message()), Catch::Contains("POLICY_SKRULL"));
  CHECK(absl::IsInvalidArgument(
      client->GetJob("run7", {.timeout = milliseconds(0)}).status()));
  CHECK(absl::IsInvalidArgument(client->StreamPlans({}).status()));
}

TEST_CASE("PlannerClient: a forked child gets a clear error", "[client]") {
  FakePlanner planner;
  planner.get_job = [](v1::Job*) { return grpc::Status::OK; };
  const ClientOptions options = QuickOptions(planner.address());
  auto client = ClientOf(options);
  REQUIRE(client->GetJob("run7").ok());
  auto stream = client->StreamPlans({.job = "run7"});
  REQUIRE(stream.ok());

  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int failures = 0;
    failures += !absl::IsFailedPrecondition(client->GetJob("run7").status());
    failures += !absl::IsFailedPrecondition((*stream)->Send(0, {1}));
    failures += !absl::IsFailedPrecondition((*stream)->Next().status());
    failures +=
        !absl::IsFailedPrecondition(PlannerClient::Create(options).status());
    stream->reset();
    client.reset();
    ::_exit(failures);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(client->GetJob("run7").ok());  // the parent goes on
}

}  // namespace
}  // namespace skrull
