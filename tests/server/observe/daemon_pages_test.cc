// GetStatus and the pages of a real daemon.
#include <catch2/catch.hpp>
#include <string>

#include "skrull/tests/server/service_test_util.h"

namespace skrull::testing {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

grpc::Status GetStatus(Client* client, int32_t max_jobs, int32_t max_plans,
                       v1::ServerStatus* status) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::minutes(2));
  v1::GetStatusRequest request;
  request.set_max_jobs(max_jobs);
  request.set_max_plans(max_plans);
  return client->stub().GetStatus(&context, request, status);
}

grpc::Status Report(Client* client, const std::string& job, int64_t step,
                    v1::StepOutcome outcome) {
  grpc::ClientContext context;
  v1::ReportStepRequest request;
  request.set_job(job);
  request.mutable_report()->set_step(step);
  request.mutable_report()->set_outcome(outcome);
  v1::ReportStepResponse response;
  return client->stub().ReportStep(&context, request, &response);
}

TEST_CASE("GetStatus: what the daemon did, latest first", "[server][status]") {
  TempDir directory;
  Daemon daemon(
      {"--store=sqlite:" + (directory.path() / "secret-path.db").string(),
       "--planning_threads=3"});
  Client client(daemon.address());
  for (const std::string name : {"a", "b", "c"}) {
    REQUIRE(client.CreateJob(name, SmallSpec(2, 2, 100)).ok());
  }
  REQUIRE(client.Plan(Batch("a", 1, {10, 150, 20})).ok());
  REQUIRE(client.Plan(Batch("c", 5, {30})).ok());
  REQUIRE(client.Plan(Batch("c", 5, {30})).ok());  // stands already
  v1::PlanBatchRequest what_if = Batch("a", 9, {10});
  what_if.set_validate_only(true);
  REQUIRE(client.Plan(what_if).ok());
  CHECK_FALSE(client.Plan(Batch("a", 2, {500})).ok());
  REQUIRE(Report(&client, "c", 5, v1::STEP_OUTCOME_OK).ok());

  v1::ServerStatus status;
  REQUIRE(GetStatus(&client, 0, 0, &status).ok());
  CHECK(status.store() == "sqlite");
  CHECK(status.job_count() == 3);
  CHECK(status.planning_thread_count() == 3);
  CHECK(status.plan_count() == 3);
  CHECK(status.refusal_count() == 1);
  CHECK(status.report_count() == 1);
  CHECK(status.out_of_memory_count() == 0);
  CHECK_FALSE(status.draining());
  CHECK(status.now().seconds() >= status.start_time().seconds());
  REQUIRE(status.plans_size() == 2);
  CHECK(status.plans(0).job() == "c");
  CHECK(status.plans(1).job() == "a");
  CHECK(status.plans(1).token_count() == 180);
  CHECK(status.plans(1).rank_load_size() == 4);
  REQUIRE(status.jobs_size() == 3);
  CHECK(status.jobs(0).name() == "c");
  CHECK(status.jobs(0).plan_count() == 1);
  CHECK(status.jobs(0).report_count() == 1);
  CHECK(status.jobs(0).last_plan().step() == 5);
  CHECK(status.jobs(1).name() == "a");
  CHECK(status.jobs(1).rank_count() == 4);
  CHECK(status.jobs(1).bucket_size_tokens() == 100);
  CHECK(status.jobs(2).name() == "b");
  CHECK_FALSE(status.jobs(2).has_last_plan());

  status.Clear();
  REQUIRE(GetStatus(&client, 2, 1, &status).ok());
  CHECK(status.jobs_size() == 2);
  CHECK(status.plans_size() == 1);
  const grpc::Status refused = GetStatus(&client, 1001, 0, &status);
  CHECK(refused.error_code() == grpc::INVALID_ARGUMENT);
  CHECK(DetailOf(refused).field() == "max_jobs");
  CHECK(DetailOf(GetStatus(&client, 0, -1, &status)).field() == "max_plans");
}

TEST_CASE("GetStatus: a job that was deleted or replaced leaves no plan",
          "[server][status]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("a", SmallSpec(1, 2, 100)).ok());
  REQUIRE(client.CreateJob("b", SmallSpec(1, 2, 100)).ok());
  REQUIRE(client.Plan(Batch("a", 1, {10})).ok());
  REQUIRE(client.Plan(Batch("b", 1, {10})).ok());
  REQUIRE(client.CreateJob("a", SmallSpec(1, 4, 100), 2).ok());
  REQUIRE(client.DeleteJob("b").ok());
  v1::ServerStatus status;
  REQUIRE(GetStatus(&client, 0, 0, &status).ok());
  CHECK(status.plans_size() == 0);
  REQUIRE(status.jobs_size() == 1);
  CHECK(status.jobs(0).generation() == 2);
  CHECK(status.jobs(0).plan_count() == 0);
}

TEST_CASE("Pages: the status page is sent with headers that guard it",
          "[server][status]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run7", SmallSpec(2, 2, 100)).ok());
  REQUIRE(client.Plan(Batch("run7", 1, {10, 150, 20})).ok());
  const std::string page = HttpAnswer(daemon.metrics_address(), "/");
  CHECK_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
  CHECK_THAT(page,
             Contains("\r\nContent-Type: text/html; charset=utf-8\r\n") &&
                 Contains("\r\nCache-Control: no-store\r\n") &&
                 Contains("\r\nX-Content-Type-Options: nosniff\r\n") &&
                 Contains("\r\nContent-Security-Policy: default-src 'none'; "
                          "style-src 'sha256-"));
  CHECK_THAT(page, Contains("run7") && Contains("POLICY_OPTIMIZED") &&
                       Contains("href=\"/metrics\""));
}

TEST_CASE("Pages: only GET and HEAD, only what there is", "[server][status]") {
  Daemon daemon;
  const std::string address = daemon.metrics_address();
  for (const std::string method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    CHECK_THAT(HttpAnswer(address, "/", method),
               StartsWith("HTTP/1.1 405 ") && Contains("Allow: GET, HEAD\r\n"));
  }
  for (const std::string path :
       {"/x", "/metrics/", "/../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd"}) {
    CAPTURE(path);
    CHECK_THAT(HttpAnswer(address, path), StartsWith("HTTP/1.1 40"));
  }
  const std::string head = HttpAnswer(address, "/metrics", "HEAD");
  CHECK_THAT(head, StartsWith("HTTP/1.1 200 "));
  CHECK(head.ends_with("\r\n\r\n"));
  CHECK_THAT(HttpAnswer(address, "/metrics"),
             Contains("Content-Type: text/plain; version=0.0.4"));
}

TEST_CASE("Pages: no status page when the daemon is told so",
          "[server][status]") {
  Daemon daemon({"--status_page=false"});
  CHECK_THAT(HttpAnswer(daemon.metrics_address(), "/"),
             StartsWith("HTTP/1.1 404 "));
  CHECK_THAT(HttpAnswer(daemon.metrics_address(), "/healthz"),
             StartsWith("HTTP/1.1 200 "));
}

TEST_CASE("Pages: probes tell a daemon that serves from one that drains",
          "[server][status]") {
  Daemon daemon;
  const std::string address = daemon.metrics_address();
  CHECK(HttpGet(address, "/healthz") == "serving\n");
  CHECK(HttpGet(address, "/readyz") == "serving\n");
  CHECK(daemon.Metric("skrull_draining") == 0);
  Client client(daemon.address());
  const auto slow = client.StartSlowPlan(1);
  REQUIRE(Eventually(
      [&] { return daemon.Metric("skrull_planning_threads_busy") == 1; }));
  daemon.Terminate();
  // While it drains: the slow plan holds it for as long as this takes.
  CHECK(Eventually([&] {
    return HttpAnswer(address, "/readyz").starts_with("HTTP/1.1 503 ");
  }));
  CHECK_THAT(HttpAnswer(address, "/healthz"),
             StartsWith("HTTP/1.1 503 ") && Contains("draining"));
  CHECK(daemon.Metric("skrull_draining") == 1);
  CHECK(slow->status.get().ok());
  CHECK(daemon.Wait() == 0);
}

TEST_CASE("Job metrics: of the jobs active last, within a cap",
          "[server][metrics]") {
  Daemon daemon({"--job_metrics=2"});
  Client client(daemon.address());
  for (const std::string name : {"a", "b", "c"}) {
    REQUIRE(client.CreateJob(name, SmallSpec(2, 2, 100)).ok());
    REQUIRE(client.Plan(Batch(name, 1, {10, 150, 20})).ok());
  }
  CHECK(daemon.Metric("skrull_job_plans_total{job=\"b\"}") == 1);
  CHECK(daemon.Metric("skrull_job_plans_total{job=\"c\"}") == 1);
  CHECK(daemon.Metric("skrull_job_bucket_tokens{job=\"c\"}") == 100);
  CHECK_THAT(daemon.Scrape(), !Contains("job=\"a\""));
  // Whoever reports is active, too.
  REQUIRE(Report(&client, "a", 1, v1::STEP_OUTCOME_OK).ok());
  CHECK(daemon.Metric("skrull_job_plans_total{job=\"a\"}") == 1);
  CHECK(daemon.Metric("skrull_job_step_reports_total{job=\"a\"}") == 1);
  CHECK_THAT(daemon.Scrape(), !Contains("job=\"b\""));
  REQUIRE(client.DeleteJob("a").ok());
  CHECK_THAT(daemon.Scrape(), !Contains("job=\"a\""));
}

TEST_CASE("Job metrics: expire", "[server][metrics]") {
  Daemon daemon({"--job_metrics=2", "--job_metrics_expiry_seconds=1"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("a", SmallSpec(2, 2, 100)).ok());
  const auto measured = [&] {
    return daemon.Scrape().find("job=\"a\"") != std::string::npos;
  };
  int64_t step = 0;
  CHECK(Eventually([&] {
    return client.Plan(Batch("a", ++step, {10})).ok() && measured();
  }));
  CHECK(Eventually([&] { return !measured(); }));
}

}  // namespace
}  // namespace skrull::testing
