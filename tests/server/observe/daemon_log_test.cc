// What a real daemon logs about calls, and what ties the lines to them.
#include <catch2/catch.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "skrull/server/call_log.h"
#include "skrull/tests/server/service_test_util.h"

namespace skrull::testing {
namespace {

using Metadata = std::vector<std::pair<std::string, std::string>>;

// Calls GetJob; the id the daemon gave the call.
std::string GetJob(Client* client, const std::string& name,
                   const Metadata& metadata = {}) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::minutes(2));
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  v1::GetJobRequest request;
  request.set_name(name);
  v1::Job job;
  client->stub().GetJob(&context, request, &job);
  const auto& answer = context.GetServerInitialMetadata();
  const auto id = answer.find("x-request-id");
  REQUIRE(id != answer.end());
  return std::string(id->second.data(), id->second.size());
}

// The daemon's log lines of an event. Every line of its log must be JSON.
std::vector<nlohmann::json> Lines(const Daemon& daemon,
                                  const std::string& event) {
  std::vector<nlohmann::json> lines;
  std::istringstream output(daemon.Output());
  for (std::string line; std::getline(output, line);) {
    if (line.starts_with("skrulld listening on ")) continue;
    const auto object = nlohmann::json::parse(line);
    for (const char* key : {"time", "level", "event"}) {
      REQUIRE(object.contains(key));
    }
    if (object["event"] == event) lines.push_back(object);
  }
  return lines;
}

TEST_CASE("Daemon log: a call's lines have the id that the client sent",
          "[server][log]") {
  Daemon daemon({"--log_format=json"});
  Client client(daemon.address());
  CHECK(GetJob(&client, "run7", {{"x-request-id", "my-id.1"}}) == "my-id.1");
  const auto lines = Lines(daemon, "call_refused");
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["level"] == "info");
  CHECK(lines[0]["method"] == "GetJob");
  CHECK(lines[0]["request_id"] == "my-id.1");
  CHECK(lines[0]["job"] == "run7");
  CHECK(lines[0]["reason"] == "JOB_NOT_FOUND");
  CHECK(lines[0]["message"] == "there is no job run7");
  CHECK(lines[0]["seconds"].is_number());
  CHECK(lines[0]["peer"].get<std::string>().find("127.0.0.1") !=
        std::string::npos);
  CHECK_FALSE(lines[0].contains("trace_id"));
}

TEST_CASE("Daemon log: a call without a good id gets one of its own",
          "[server][log]") {
  Daemon daemon({"--log_format=json"});
  Client client(daemon.address());
  std::set<std::string> ids;
  const std::vector<Metadata> calls = {
      {},
      {{"x-request-id", ""}},
      {{"x-request-id", "a b"}},
      {{"x-request-id", "a\"b"}},
      {{"x-request-id", std::string(65, 'a')}},
      {{"x-request-id", "one"}, {"x-request-id", "two"}}};
  for (const Metadata& metadata : calls) {
    ids.insert(GetJob(&client, "run7", metadata));
  }
  CHECK(ids.size() == calls.size());
  std::set<std::string> logged;
  for (const auto& line : Lines(daemon, "call_refused")) {
    logged.insert(line["request_id"].get<std::string>());
  }
  CHECK(logged == ids);
  for (const std::string& id : ids) CHECK(id.find('-') == 12);
}

TEST_CASE("Daemon log: names a good trace context, and no other metadata",
          "[server][log]") {
  Daemon daemon({"--log_format=json", "--log_level=debug"});
  Client client(daemon.address());
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  GetJob(&client, "run7",
         {{"traceparent", "00-" + trace + "-00f067aa0ba902b7-01"},
          {"authorization", "Bearer hunter2-secret"}});
  GetJob(&client, "run8", {{"traceparent", "00-not-one"}});
  const auto lines = Lines(daemon, "call");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["trace_id"] == trace);
  CHECK(lines[0]["span_id"] == "00f067aa0ba902b7");
  CHECK(lines[0]["code"] == "NOT_FOUND");
  CHECK_FALSE(lines[1].contains("trace_id"));
  CHECK(daemon.Output().find("hunter2") == std::string::npos);
}

TEST_CASE("Daemon log: jobs that come and go, and ranks without memory",
          "[server][log]") {
  Daemon daemon({"--log_format=json"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run7", SmallSpec(2, 2, 100), 3).ok());
  REQUIRE(client.Plan(Batch("run7", 1, {10, 20})).ok());
  v1::ReportStepRequest request;
  request.set_job("run7");
  request.mutable_report()->set_step(9);
  request.mutable_report()->set_rank(1);
  request.mutable_report()->set_outcome(v1::STEP_OUTCOME_OUT_OF_MEMORY);
  grpc::ClientContext context;
  v1::ReportStepResponse response;
  REQUIRE(client.stub().ReportStep(&context, request, &response).ok());
  REQUIRE(client.DeleteJob("run7").ok());
  CHECK(Lines(daemon, "job_registered").at(0)["generation"] == 3);
  CHECK(Lines(daemon, "job_deleted").at(0)["job"] == "run7");
  const auto out = Lines(daemon, "out_of_memory").at(0);
  CHECK(out["step"] == 9);
  CHECK(out["rank"] == 1);
  CHECK(out["level"] == "warning");
  CHECK(Lines(daemon, "call").empty());
}

TEST_CASE("Daemon log: a burst of refusals is a few lines and a count",
          "[server][log]") {
  Daemon daemon({"--log_format=json"});
  Client client(daemon.address());
  constexpr int kCalls = 400;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) GetJob(&client, "run7");
  const std::chrono::duration<double> spent =
      std::chrono::steady_clock::now() - start;
  const auto lines = Lines(daemon, "call_refused");
  CHECK(lines.size() >= CallLog::kLinesPerSecond);
  CHECK(static_cast<double>(lines.size()) <=
        CallLog::kLinesPerSecond * (spent.count() + 1));
  // The next line, once there may be one, tells of what was left out.
  const auto told = [&] {
    int64_t count = 0;
    for (const auto& line : Lines(daemon, "call_refused")) {
      count += 1 + line.value("suppressed", int64_t{0});
    }
    return count;
  };
  int64_t calls = kCalls;
  CHECK(Eventually([&] {
    GetJob(&client, "run7");
    ++calls;
    return told() == calls;
  }));
}

TEST_CASE("Daemon log: a batch of a stream is logged by the stream's id",
          "[server][log]") {
  Daemon daemon({"--log_format=json"});
  Client client(daemon.address());
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "stream-1");
  const auto stream = client.stub().StreamPlans(&context);
  v1::StreamPlansRequest request;
  request.mutable_batch()->set_job("none");
  request.mutable_batch()->add_lengths(1);
  REQUIRE(stream->Write(request));
  v1::StreamPlansResponse response;
  REQUIRE(stream->Read(&response));
  CHECK(response.has_status());
  stream->WritesDone();
  CHECK(stream->Finish().ok());
  const auto lines = Lines(daemon, "call_refused");
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["method"] == "StreamPlans");
  CHECK(lines[0]["request_id"] == "stream-1");
  CHECK(lines[0]["job"] == "none");
  CHECK(daemon.Metric("skrull_rpc_seconds_count{method=\"StreamPlans\"}") == 1);
}

TEST_CASE("Daemon log: slow calls, but not those that wait for others",
          "[server][log]") {
  Daemon daemon({"--log_format=json", "--slow_call_seconds=0.05"});
  Client client(daemon.address());
  REQUIRE(client.StartSlowPlan(1)->status.get().ok());
  const auto waiting =
      client.StartRankPlan("slow", 2, 0, std::chrono::milliseconds(500));
  CHECK(waiting->status.get().error_code() == grpc::DEADLINE_EXCEEDED);
  CHECK(Eventually([&] { return !Lines(daemon, "slow_call").empty(); }));
  for (const auto& line : Lines(daemon, "slow_call")) {
    CHECK(line["method"] != "GetRankPlan");
    CHECK(line["seconds"] > 0.05);
    CHECK(line["level"] == "warning");
  }
}

}  // namespace
}  // namespace skrull::testing
