// The daemon as a process: crash, stop, busy ports, idle connections.
#include <catch2/catch.hpp>

#include "skrull/tests/server/service_test_util.h"

namespace skrull::testing {
namespace {

TEST_CASE("Service: kill -9 between two ranks' requests changes no byte",
          "[server][service]") {  // case 25
  TempDir directory;
  const std::string store =
      "--store=sqlite:" + (directory.path() / "store.db").string();
  const std::vector<int64_t> lengths = {500, 30, 1200, 7, 90};
  v1::PlanBatchResponse first;
  v1::RankPlan rank_before;
  {
    Daemon daemon({store});
    Client client(daemon.address());
    REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 1000)).ok());
    REQUIRE(client.Plan(Batch("run", 4, lengths), &first).ok());
    REQUIRE(client.RankPlan("run", 4, 1, &rank_before).ok());
    daemon.Kill();
  }
  Daemon daemon({store});
  Client client(daemon.address());
  CHECK(daemon.Metric("skrull_jobs") == 1);
  v1::PlanBatchResponse second;
  REQUIRE(client.Plan(Batch("run", 4, lengths), &second).ok());
  CHECK(second.plan().SerializeAsString() == first.plan().SerializeAsString());
  CHECK_FALSE(second.has_planning_time());
  v1::RankPlan rank_after;
  REQUIRE(client.RankPlan("run", 4, 1, &rank_after).ok());
  CHECK(rank_after.SerializeAsString() == rank_before.SerializeAsString());
  CHECK(DetailOf(client.Plan(Batch("run", 4, {1}))).reason() ==
        "PLAN_CONFLICT");
  CHECK(client.Plan(Batch("run", 5, lengths)).ok());
}

TEST_CASE("Service: a rank finds a plan committed before the restart",
          "[server][service]") {
  TempDir directory;
  const std::string store =
      "--store=sqlite:" + (directory.path() / "store.db").string();
  {
    Daemon daemon({store});
    Client client(daemon.address());
    REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 1000)).ok());
    REQUIRE(client.Plan(Batch("run", 4, {1, 2, 3})).ok());
    daemon.Terminate();
    REQUIRE(daemon.Wait() == 0);
  }
  // Nobody plans here: the first look must be into the store.
  Daemon daemon({store});
  Client client(daemon.address());
  v1::RankPlan share;
  REQUIRE(client.RankPlan("run", 4, 0, &share).ok());
  CHECK(share.batch_token_count() == 6);
}

TEST_CASE("Service: a second daemon on a port refuses to start",
          "[server][service]") {  // case 26
  Daemon daemon;
  for (const bool metrics : {false, true}) {
    const std::string busy =
        metrics ? daemon.metrics_address() : daemon.address();
    Process second({DaemonPath(),
                    "--listen_address=" + (metrics ? "127.0.0.1:0" : busy),
                    "--metrics_address=" + (metrics ? busy : "127.0.0.1:0")});
    CHECK(second.Wait() == 1);
    INFO(second.Output());
    CHECK(second.Output().find(busy) != std::string::npos);
    CHECK(second.Output().find("in use") != std::string::npos);
    CHECK(second.Output().find("listening on") == std::string::npos);
  }
  Client client(daemon.address());
  CHECK(client.CreateJob("run", SmallSpec(1, 1, 10)).ok());
}

TEST_CASE("Service: wrong options exit with 2, help and version with 0",
          "[server][service]") {
  Process wrong({DaemonPath(), "--no_such_option=1"});
  CHECK(wrong.Wait() == 2);
  CHECK(wrong.Output().find("no_such_option") != std::string::npos);
  Process help({DaemonPath(), "--help"});
  CHECK(help.Wait() == 0);
  CHECK(help.Output().find("listen_address") != std::string::npos);
  Process version({DaemonPath(), "--version"});
  CHECK(version.Wait() == 0);
  CHECK(version.Output().find("skrulld ") == 0);
  Process store({DaemonPath(), "--listen_address=127.0.0.1:0",
                 "--metrics_address=127.0.0.1:0",
                 "--store=sqlite:/no/such/directory/store.db"});
  CHECK(store.Wait() == 1);
  CHECK(store.Output().find("/no/such/directory") != std::string::npos);
}

TEST_CASE("Service: SIGTERM answers 100 pending calls and exits 0",
          "[server][service]") {  // case 27
  Daemon daemon({"--planning_threads=1", "--drain_seconds=60"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 1000)).ok());
  // A stream that is open and idle.
  grpc::ClientContext stream_context;
  const auto stream = client.stub().StreamPlans(&stream_context);
  v1::StreamPlansRequest streamed;
  *streamed.mutable_batch() = Batch("run", 500, {1});
  v1::StreamPlansResponse answer;
  REQUIRE(stream->Write(streamed));
  REQUIRE(stream->Read(&answer));
  const auto slow = client.StartSlowPlan(1);
  const auto queued = client.StartSlowPlan(2);
  REQUIRE(Eventually(
      [&] { return daemon.Metric("skrull_planning_queue_depth") == 1; }));
  std::vector<std::unique_ptr<Pending<v1::PlanBatchResponse>>> plans;
  std::vector<std::unique_ptr<Pending<v1::RankPlan>>> waits;
  for (int i = 0; i < 50; ++i) {
    plans.push_back(client.StartPlan(Batch("run", i, {1, 2, 3 + i})));
    waits.push_back(client.StartRankPlan("run", 1000 + i, i % 4));
  }
  REQUIRE(Eventually([&] {
    return daemon.Metric("skrull_rank_waits") == 50 &&
           daemon.Metric("skrull_planning_queue_depth") >= 50;
  }));
  daemon.Terminate();
  // What was accepted is finished; what waits for others is told to go.
  for (const auto& wait : waits) {
    const grpc::Status status = wait->status.get();
    CHECK(status.error_code() == grpc::StatusCode::UNAVAILABLE);
    CHECK(DetailOf(status).reason() == "DRAINING");
  }
  CHECK(slow->status.get().ok());
  CHECK(queued->status.get().ok());
  for (const auto& plan : plans) CHECK(plan->status.get().ok());
  CHECK(stream->Finish().error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(daemon.Wait() == 0);
  CHECK_FALSE(client.Plan(Batch("run", 1, {1})).ok());
}

TEST_CASE("Service: the drain limit cuts off what takes longer",
          "[server][service]") {
  Daemon daemon({"--planning_threads=1", "--drain_seconds=0"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 1000)).ok());
  std::vector<std::unique_ptr<Pending<v1::PlanBatchResponse>>> calls;
  for (int64_t step = 0; step < 6; ++step) {
    calls.push_back(client.StartSlowPlan(step));
  }
  REQUIRE(Eventually(
      [&] { return daemon.Metric("skrull_planning_queue_depth") >= 4; }));
  daemon.Terminate();
  CHECK(daemon.Wait() == 0);
  for (const auto& call : calls) {
    const grpc::Status status = call->status.get();
    INFO(status.error_code() << " " << status.error_message());
    CHECK((status.ok() ||
           status.error_code() == grpc::StatusCode::UNAVAILABLE ||
           status.error_code() == grpc::StatusCode::CANCELLED));
  }
}

// Case 29 in seconds instead of minutes: the daemon pings every second, as it
// would every minute, and the client, too; the connection is idle for 50 of the
// shortest intervals that the daemon allows instead of for 90.
TEST_CASE("Service: an idle connection with keepalive still works",
          "[server][service]") {
  Daemon daemon({"--keepalive_seconds=1", "--keepalive_timeout_seconds=5",
                 "--min_ping_seconds=0.1"});
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 200);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  const auto channel = grpc::CreateCustomChannel(
      daemon.address(), grpc::InsecureChannelCredentials(), arguments);
  const auto stub = v1::PlannerService::NewStub(channel);
  const auto list = [&] {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    return stub->ListJobs(&context, v1::ListJobsRequest(), &response);
  };
  REQUIRE(list().ok());
  // A GOAWAY (too_many_pings) or a failed ping would end the connection, and
  // the channel would leave READY; nothing else can change its state.
  REQUIRE(channel->GetState(false) == GRPC_CHANNEL_READY);
  CHECK_FALSE(channel->WaitForStateChange(
      GRPC_CHANNEL_READY,
      std::chrono::system_clock::now() + std::chrono::seconds(5)));
  CHECK(list().ok());
}

}  // namespace
}  // namespace skrull::testing
