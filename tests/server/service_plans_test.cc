// Planning and committing through a real daemon, and what it refuses.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "grpcpp/impl/codegen/client_unary_call.h"
#include "skrull/tests/server/service_test_util.h"

namespace skrull::testing {
namespace {

TEST_CASE("Service: a repeat gets the same bytes, another batch both digests",
          "[server][service]") {  // case 24
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100)).ok());
  const v1::PlanBatchRequest request = Batch("run", 7, {10, 20, 150, 30});
  v1::PlanBatchResponse first;
  REQUIRE(client.Plan(request, &first).ok());
  CHECK(first.committed());
  CHECK(first.has_planning_time());
  CHECK(first.plan().job() == "run");
  CHECK(first.plan().step() == 7);
  v1::PlanBatchResponse second;
  REQUIRE(client.Plan(request, &second).ok());
  CHECK(second.committed());
  CHECK_FALSE(second.has_planning_time());
  CHECK(second.plan().SerializeAsString() == first.plan().SerializeAsString());

  const grpc::Status status =
      client.Plan(Batch("run", 7, {10, 20, 151, 30}), nullptr);
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(DetailOf(status).reason() == "PLAN_CONFLICT");
  // Two different digests of 64 hexadecimal digits.
  const std::string hex = "0123456789abcdef";
  std::vector<std::string> digests;
  std::string word;
  for (const char c : status.error_message() + " ") {
    if (hex.find(c) != std::string::npos) {
      word += c;
    } else {
      if (word.size() == 64) digests.push_back(word);
      word.clear();
    }
  }
  REQUIRE(digests.size() == 2);
  CHECK(digests[0] != digests[1]);

  // The same lengths under another policy are another request.
  v1::PlanBatchRequest other_policy = request;
  other_policy.set_policy(v1::POLICY_STATIC_CP);
  CHECK(DetailOf(client.Plan(other_policy)).reason() == "PLAN_CONFLICT");
  // The job's own policy by name is the same request.
  v1::PlanBatchRequest same_policy = request;
  same_policy.set_policy(v1::POLICY_OPTIMIZED);
  CHECK(client.Plan(same_policy).ok());
  // Another attempt is another key.
  v1::PlanBatchRequest attempt = Batch("run", 7, {10, 20, 151, 30});
  attempt.set_attempt(1);
  CHECK(client.Plan(attempt).ok());
}

TEST_CASE("Service: the same bytes with memory and SQLite, committed or not",
          "[server][service]") {
  TempDir directory;
  Daemon memory;
  Daemon sqlite({"--store=sqlite:" + (directory.path() / "store.db").string()});
  Client clients[] = {Client(memory.address()), Client(sqlite.address())};
  const v1::JobSpec spec = SmallSpec(2, 4, 300);
  std::mt19937_64 random(20260301);
  for (Client& client : clients) REQUIRE(client.CreateJob("run", spec).ok());
  for (int64_t step = 0; step < 20; ++step) {
    std::vector<int64_t> lengths(1 + random() % 40);
    for (int64_t& length : lengths) {
      length = 1 + static_cast<int64_t>(random() % 1000);
    }
    v1::PlanBatchRequest request = Batch("run", step, lengths);
    v1::PlanBatchRequest what_if = request;
    what_if.set_validate_only(true);
    std::vector<std::string> bytes;
    for (Client& client : clients) {
      v1::PlanBatchResponse response;
      REQUIRE(client.Plan(what_if, &response).ok());
      CHECK_FALSE(response.committed());
      bytes.push_back(response.plan().SerializeAsString());
      REQUIRE(client.Plan(request, &response).ok());
      CHECK(response.committed());
      bytes.push_back(response.plan().SerializeAsString());
    }
    INFO("step " << step);
    CHECK(std::all_of(bytes.begin(), bytes.end(),
                      [&](const std::string& b) { return b == bytes[0]; }));
  }
}

TEST_CASE("Service: validate_only and job_spec commit nothing",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 100)).ok());
  v1::PlanBatchRequest what_if = Batch("run", 1, {5, 6});
  what_if.set_validate_only(true);
  v1::PlanBatchResponse response;
  REQUIRE(client.Plan(what_if, &response).ok());
  CHECK_FALSE(response.committed());
  // The key is still free for another batch.
  REQUIRE(client.Plan(Batch("run", 1, {7, 8}), &response).ok());
  CHECK(response.committed());

  v1::PlanBatchRequest from_spec = Batch("", 1, {5, 6});
  *from_spec.mutable_job_spec() = SmallSpec(1, 2, 100);
  REQUIRE(client.Plan(from_spec, &response).ok());
  CHECK_FALSE(response.committed());
  CHECK(response.plan().job().empty());
}

TEST_CASE("Service: refuses what no planner should see", "[server][service]") {
  Daemon daemon({"--max_lengths=1000", "--max_ranks=64"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 10)).ok());
  const v1::PlanBatchRequest good = Batch("run", 1, {5});
  struct Case {
    const char* name;
    std::function<void(v1::PlanBatchRequest*)> change;
    grpc::StatusCode code;
    const char* reason;
    const char* field;
  };
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  const auto exhausted = grpc::StatusCode::RESOURCE_EXHAUSTED;
  const auto precondition = grpc::StatusCode::FAILED_PRECONDITION;
  const std::vector<Case> cases = {
      {"negative step", [](auto* r) { r->set_step(-1); }, invalid,
       "FIELD_INVALID", "step"},
      {"negative attempt", [](auto* r) { r->set_attempt(-1); }, invalid,
       "FIELD_INVALID", "attempt"},
      {"attempt 1001", [](auto* r) { r->set_attempt(1001); }, invalid,
       "FIELD_INVALID", "attempt"},
      {"no job", [](auto* r) { r->clear_job(); }, invalid, "FIELD_INVALID",
       "job"},
      {"job and spec",
       [](auto* r) { *r->mutable_job_spec() = SmallSpec(1, 1, 10); }, invalid,
       "FIELD_INVALID", "job"},
      {"bad job name", [](auto* r) { r->set_job("a\nb"); }, invalid,
       "FIELD_INVALID", "job"},
      {"unknown policy",
       [](auto* r) { r->set_policy(static_cast<v1::Policy>(99)); }, invalid,
       "FIELD_INVALID", "policy"},
      {"empty batch", [](auto* r) { r->clear_lengths(); }, invalid,
       "EMPTY_BATCH", ""},
      {"length 0", [](auto* r) { r->set_lengths(0, 0); }, invalid,
       "FIELD_INVALID", "lengths"},
      {"length -2^63", [](auto* r) { r->set_lengths(0, INT64_MIN); }, invalid,
       "FIELD_INVALID", "lengths"},
      {"length 2^63-1", [](auto* r) { r->set_lengths(0, INT64_MAX); }, invalid,
       "FIELD_INVALID", "lengths"},
      {"too long", [](auto* r) { r->set_lengths(0, 21); }, precondition,
       "SEQUENCE_TOO_LONG", "lengths"},
      {"wrong generation", [](auto* r) { r->set_generation(2); }, precondition,
       "GENERATION_MISMATCH", "generation"},
      {"unknown job", [](auto* r) { r->set_job("other"); },
       grpc::StatusCode::NOT_FOUND, "JOB_NOT_FOUND", ""},
      {"1001 lengths",
       [](auto* r) {
         for (int i = 0; i < 1000; ++i) r->add_lengths(1);
       },
       exhausted, "LIMIT_EXCEEDED", "lengths"},
      {"spec of 65 ranks",
       [](auto* r) {
         r->clear_job();
         *r->mutable_job_spec() = SmallSpec(1, 65, 10);
       },
       exhausted, "LIMIT_EXCEEDED", "parallelism"},
      {"spec without a model",
       [](auto* r) {
         r->clear_job();
         r->mutable_job_spec();
       },
       invalid, "FIELD_INVALID", "model.hidden_size"},
  };
  for (const Case& bad : cases) {
    v1::PlanBatchRequest request = good;
    bad.change(&request);
    const grpc::Status status = client.Plan(request);
    INFO(bad.name << ": " << status.error_message());
    CHECK(status.error_code() == bad.code);
    CHECK_FALSE(status.error_message().empty());
    const v1::ErrorDetail detail = DetailOf(status);
    CHECK(detail.reason() == bad.reason);
    if (*bad.field != '\0') CHECK(detail.field() == bad.field);
  }
  // Every refusal left the state as it was.
  CHECK(daemon.Metric("skrull_plans_total{policy=\"POLICY_OPTIMIZED\"}") == 0);
  CHECK(client.Plan(good).ok());
  CHECK(daemon.Metric("skrull_refusals_total{reason=\"LIMIT_EXCEEDED\"}") == 2);
}

TEST_CASE("Service: bytes that are no message are refused, not fatal",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  const std::string garbage("\x0a\xff\xff\xff\xff\x0f garbage");
  for (const char* method :
       {"CreateJob", "GetJob", "ListJobs", "DeleteJob", "PlanBatch",
        "GetRankPlan", "ReportStep", "NoSuchMethod"}) {
    const grpc::Slice slice(garbage);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::ClientContext context;
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
            client.channel().get(),
            grpc::internal::RpcMethod(
                (std::string("/skrull.v1.PlannerService/") + method).c_str(),
                grpc::internal::RpcMethod::NORMAL_RPC),
            &context, request, &response);
    INFO(method);
    CHECK_FALSE(status.ok());
  }
  CHECK(client.CreateJob("run", SmallSpec(1, 1, 10)).ok());
}

TEST_CASE("Service: 1,400,000 lengths get a clear error and hurt nobody",
          "[server][service]") {  // case 23
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 1, 100000)).ok());
  const grpc::Status status =
      client.Plan(Batch("run", 1, std::vector<int64_t>(1400000, 70000)));
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(status.error_message().find("1400000") != std::string::npos);
  CHECK(status.error_message().find("1048576") != std::string::npos);
  CHECK(DetailOf(status).reason() == "LIMIT_EXCEEDED");
  CHECK(DetailOf(status).limit() == 1048576);
  CHECK(client.Plan(Batch("run", 1, {1, 2, 3})).ok());
}

TEST_CASE("Service: a request over the byte limit names the limit",
          "[server][service]") {
  Daemon daemon({"--max_request_bytes=100000"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 1, 100000)).ok());
  const grpc::Status status =
      client.Plan(Batch("run", 1, std::vector<int64_t>(60000, 70000)));
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(DetailOf(status).limit() == 100000);
  CHECK(client.Plan(Batch("run", 1, {1})).ok());
}

TEST_CASE("Service: thousands of impossible lengths fit an error's trailer",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 1, 10)).ok());
  const grpc::Status status =
      client.Plan(Batch("run", 1, std::vector<int64_t>(100000, 11)));
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(DetailOf(status).reason() == "SEQUENCE_TOO_LONG");
  CHECK(DetailOf(status).indices_size() == 32);
  CHECK(status.error_message().size() + status.error_details().size() < 6000);
}

TEST_CASE("Service: 64 identical calls are planned once", "[server][service]") {
  Daemon daemon({"--planning_threads=1"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100)).ok());
  const auto slow = client.StartSlowPlan(1);
  const auto queued = client.StartSlowPlan(2);
  REQUIRE(Eventually(
      [&] { return daemon.Metric("skrull_planning_queue_depth") == 1; }));
  // Nothing is committed, so one plan for all can only come from sharing it.
  v1::PlanBatchRequest request = Batch("run", 3, {10, 20, 150, 30});
  request.set_validate_only(true);
  std::vector<std::unique_ptr<Pending<v1::PlanBatchResponse>>> calls;
  for (int i = 0; i < 64; ++i) calls.push_back(client.StartPlan(request));
  std::string bytes;
  for (const auto& call : calls) {
    REQUIRE(call->status.get().ok());
    if (bytes.empty()) bytes = call->response.plan().SerializeAsString();
    CHECK(call->response.plan().SerializeAsString() == bytes);
  }
  CHECK(daemon.Metric("skrull_plans_total{policy=\"POLICY_OPTIMIZED\"}") == 1);
  CHECK(daemon.Metric("skrull_coalesced_requests_total") == 63);
  CHECK(daemon.Metric("skrull_rpcs_total{code=\"OK\",method=\"PlanBatch\"}") >=
        64);
  CHECK(slow->status.get().ok());
  CHECK(queued->status.get().ok());
}

TEST_CASE("Service: expired and cancelled calls are not planned",
          "[server][service]") {
  Daemon daemon({"--planning_threads=1"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100)).ok());
  const auto slow = client.StartSlowPlan(1);
  const auto queued = client.StartSlowPlan(2);
  REQUIRE(Eventually(
      [&] { return daemon.Metric("skrull_planning_queue_depth") == 1; }));
  const auto expired =
      client.StartPlan(Batch("run", 1, {1, 2}), std::chrono::milliseconds(300));
  const auto cancelled = client.StartPlan(Batch("run", 2, {1, 2}));
  REQUIRE(Eventually(
      [&] { return daemon.Metric("skrull_planning_queue_depth") == 3; }));
  cancelled->context.TryCancel();
  CHECK(expired->status.get().error_code() ==
        grpc::StatusCode::DEADLINE_EXCEEDED);
  CHECK(cancelled->status.get().error_code() == grpc::StatusCode::CANCELLED);
  CHECK(slow->status.get().ok());
  CHECK(queued->status.get().ok());
  REQUIRE(Eventually(
      [&] { return daemon.Metric("skrull_dropped_requests_total") == 2; }));
  CHECK(daemon.Metric("skrull_plans_total{policy=\"POLICY_OPTIMIZED\"}") == 0);
}

TEST_CASE("Service: a full queue says so, with a hint", "[server][service]") {
  Daemon daemon({"--planning_threads=1", "--planning_queue=1"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100)).ok());
  const auto running = client.StartSlowPlan(1);
  REQUIRE(Eventually([&] {
    return daemon.Metric("skrull_planning_seconds_count{phase=\"decode\"}") ==
               1 &&
           daemon.Metric("skrull_planning_queue_depth") == 0;
  }));
  const auto waiting = client.StartSlowPlan(2);
  REQUIRE(Eventually(
      [&] { return daemon.Metric("skrull_planning_queue_depth") == 1; }));
  const grpc::Status status = client.Plan(Batch("run", 3, {1}));
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(DetailOf(status).reason() == "QUEUE_FULL");
  CHECK(DetailOf(status).limit() == 1);
  CHECK(DetailOf(status).has_retry_after());
  CHECK(running->status.get().ok());
  CHECK(waiting->status.get().ok());
  CHECK(client.Plan(Batch("run", 3, {1})).ok());
}

}  // namespace
}  // namespace skrull::testing
