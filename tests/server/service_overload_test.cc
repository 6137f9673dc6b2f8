// Quotas, fair turns and refusals of a daemon that gets more than it can plan.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "skrull/tests/server/service_test_util.h"
#include "skrull/tests/support/process_usage.h"

namespace skrull::testing {
namespace {

std::string ReasonOf(const grpc::Status& status) {
  return DetailOf(status).reason();
}

double RetryAfter(const grpc::Status& status) {
  const auto after = DetailOf(status).retry_after();
  return static_cast<double>(after.seconds()) + 1e-9 * after.nanos();
}

// True once one batch is being planned; false if none is within a minute.
bool PlansOne(const Daemon& daemon) {
  return Eventually(
      [&] { return daemon.Metric("skrull_planning_threads_busy") == 1; });
}

// A request of more bytes than a handler reads itself.
v1::PlanBatchRequest LargeBatch(const std::string& job, int64_t step) {
  return Batch(job, step, std::vector<int64_t>(20000, 700));
}

TEST_CASE("Service: a job over its quota of lengths is refused, others are not",
          "[server][service]") {
  // Far apart from what a test's own time lets in.
  Daemon daemon({"--quota_lengths_per_second=1"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 1000)).ok());
  REQUIRE(client.CreateJob("other", SmallSpec(2, 2, 1000)).ok());
  const std::vector<int64_t> lengths(1000, 10);
  REQUIRE(client.Plan(Batch("run", 0, lengths)).ok());
  const grpc::Status refused = client.Plan(Batch("run", 1, lengths));
  CHECK(refused.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(ReasonOf(refused) == "QUOTA_EXCEEDED");
  CHECK(DetailOf(refused).limit() == 1);
  CHECK(RetryAfter(refused) > 900);
  CHECK(RetryAfter(refused) <= 990);
  // Neither an answer from memory nor a large request gets around it.
  CHECK(ReasonOf(client.Plan(Batch("run", 0, lengths))) == "QUOTA_EXCEEDED");
  CHECK(ReasonOf(client.Plan(LargeBatch("run", 2))) == "QUOTA_EXCEEDED");
  CHECK(client.RankPlan("run", 0, 3).ok());
  CHECK(client.Plan(Batch("other", 0, lengths)).ok());
  CHECK(daemon.Metric("skrull_refusals_total{reason=\"QUOTA_EXCEEDED\"}") == 3);
}

TEST_CASE("Service: a large request counts with its own lengths",
          "[server][service]") {
  Daemon daemon({"--quota_lengths_per_second=1"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 1000)).ok());
  REQUIRE(client.Plan(LargeBatch("run", 0)).ok());
  const grpc::Status refused = client.Plan(Batch("run", 1, {1}));
  CHECK(ReasonOf(refused) == "QUOTA_EXCEEDED");
  // 20,000 lengths of a burst of 10, less what has come in since.
  CHECK(RetryAfter(refused) > 19000);
  CHECK(RetryAfter(refused) <= 19990);
}

TEST_CASE("Service: a job over its quota of batches at once is refused",
          "[server][service]") {
  Daemon daemon({"--planning_threads=2", "--quota_concurrent_plans=1"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("other", SmallSpec(2, 2, 1000)).ok());
  const auto slow = client.StartSlowPlan(0);
  REQUIRE(PlansOne(daemon));
  CHECK(ReasonOf(client.Plan(Batch("slow", 1, {1}))) == "QUOTA_EXCEEDED");
  CHECK(client.Plan(Batch("other", 0, {1})).ok());
  REQUIRE(slow->status.get().ok());
  CHECK(client.Plan(Batch("slow", 1, {1})).ok());
}

TEST_CASE("Service: a flood of one job is refused, another job is planned",
          "[server][service]") {
  Daemon daemon({"--planning_threads=1", "--planning_queue=3"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("flood", SmallSpec(2, 2, 1000)).ok());
  REQUIRE(client.CreateJob("calm", SmallSpec(2, 2, 1000)).ok());
  const auto slow = client.StartSlowPlan(0);
  REQUIRE(PlansOne(daemon));
  const auto queued = [&](double count) {
    return Eventually(
        [&] { return daemon.Metric("skrull_planning_queue_depth") == count; });
  };
  std::vector<std::unique_ptr<Pending<v1::PlanBatchResponse>>> flood;
  for (int step = 0; step < 3; ++step) {
    flood.push_back(client.StartPlan(Batch("flood", step, {5, 6})));
    REQUIRE(queued(step + 1));
  }
  const grpc::Status refused = client.Plan(Batch("flood", 3, {5, 6}));
  CHECK(ReasonOf(refused) == "QUEUE_FULL");
  CHECK(RetryAfter(refused) > 0);
  const auto calm = client.StartPlan(Batch("calm", 0, {5, 6}));
  // The newest of the flood gave up its place.
  CHECK(ReasonOf(flood[2]->status.get()) == "QUEUE_FULL");
  CHECK(calm->status.get().ok());
  CHECK(flood[0]->status.get().ok());
  CHECK(flood[1]->status.get().ok());
  CHECK(slow->status.get().ok());
  // Nothing is lost by a refusal: the same call passes later.
  CHECK(client.Plan(Batch("flood", 2, {5, 6})).ok());
  CHECK(daemon.Metric("skrull_planning_queue_depth") == 0);
}

TEST_CASE("Service: a caller that goes away makes room in the queue",
          "[server][service]") {
  Daemon daemon({"--planning_threads=1", "--planning_queue=1"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 1000)).ok());
  const auto slow = client.StartSlowPlan(0);
  const auto depth = [&](double count) {
    return Eventually(
        [&] { return daemon.Metric("skrull_planning_queue_depth") == count; });
  };
  REQUIRE(PlansOne(daemon));
  const auto leaves = client.StartPlan(Batch("run", 0, {5, 6}));
  REQUIRE(depth(1));
  leaves->context.TryCancel();
  CHECK(leaves->status.get().error_code() == grpc::StatusCode::CANCELLED);
  REQUIRE(depth(0));
  CHECK(client.Plan(Batch("run", 1, {5, 6})).ok());
  CHECK(slow->status.get().ok());
}

TEST_CASE("Service: large requests are answered as small ones are",
          "[server][service]") {
  Daemon daemon({"--max_lengths=20000", "--max_request_bytes=50000"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 1000)).ok());
  v1::PlanBatchResponse response, again;
  REQUIRE(client.Plan(LargeBatch("run", 0), &response).ok());
  CHECK(response.committed());
  CHECK(response.has_planning_time());
  REQUIRE(client.Plan(LargeBatch("run", 0), &again).ok());
  CHECK(again.plan().digest() == response.plan().digest());
  CHECK_FALSE(again.has_planning_time());

  CHECK(ReasonOf(client.Plan(LargeBatch("none", 0))) == "JOB_NOT_FOUND");
  CHECK(ReasonOf(client.Plan(LargeBatch("no name", 0))) == "FIELD_INVALID");
  CHECK(ReasonOf(client.Plan(LargeBatch("", 0))) == "FIELD_INVALID");
  v1::PlanBatchRequest request = LargeBatch("run", 1);
  request.add_lengths(1);
  grpc::Status status = client.Plan(request);
  CHECK(ReasonOf(status) == "LIMIT_EXCEEDED");
  CHECK(DetailOf(status).field() == "lengths");
  request = Batch("run", 1, std::vector<int64_t>(20000, 100000));
  status = client.Plan(request);
  CHECK(ReasonOf(status) == "LIMIT_EXCEEDED");
  CHECK(DetailOf(status).field() == "request");
  request = LargeBatch("run", 1);
  request.set_attempt(-1);
  CHECK(DetailOf(client.Plan(request)).field() == "attempt");
}

TEST_CASE("Service: a connection with too many calls waits, another does not",
          "[server][service]") {
  Daemon daemon({"--max_connection_calls=4"});
  Client full(daemon.address());
  Client other(daemon.address());
  REQUIRE(full.CreateJob("run", SmallSpec(2, 2, 1000)).ok());
  std::vector<std::unique_ptr<Pending<v1::RankPlan>>> waits;
  for (int rank = 0; rank < 4; ++rank) {
    waits.push_back(full.StartRankPlan("run", 0, rank));
  }
  REQUIRE(Eventually([&] { return daemon.Metric("skrull_rank_waits") == 4; }));
  // Nothing keeps the daemon from answering it but that it never hears of it.
  const auto held =
      full.StartPlan(Batch("run", 1, {5, 6}), std::chrono::milliseconds(500));
  CHECK(held->status.get().error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  CHECK(other.Plan(Batch("run", 0, {5, 6})).ok());
  for (const auto& wait : waits) CHECK(wait->status.get().ok());
  CHECK(full.Plan(Batch("run", 1, {5, 6})).ok());
}

TEST_CASE("Service: thousands of calls on a connection take no memory",
          "[server][service]") {
  constexpr int kCalls = 5000;
  constexpr int kAtOnce = 100;
  Daemon daemon({"--max_connection_calls=" + std::to_string(kAtOnce)});
  Client full(daemon.address());
  Client other(daemon.address());
  REQUIRE(full.CreateJob("run", SmallSpec(2, 2, 1000)).ok());
  REQUIRE(other.Plan(Batch("run", 1, {5, 6})).ok());
  const int64_t before = UsageOf(daemon.pid()).resident_kib;
  std::vector<std::unique_ptr<Pending<v1::RankPlan>>> waits;
  waits.reserve(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    waits.push_back(full.StartRankPlan("run", 0, i % 4));
  }
  const auto waiting = [&] { return daemon.Metric("skrull_rank_waits"); };
  REQUIRE(Eventually([&] { return waiting() >= kAtOnce; }));
  REQUIRE(other.Plan(Batch("run", 2, {5, 6})).ok());
  CHECK(waiting() == kAtOnce);
  // A call that waits takes 17 KB: all of them would take 83 MB.
  CHECK(UsageOf(daemon.pid()).resident_kib - before < 32 << 10);
  REQUIRE(other.Plan(Batch("run", 0, {5, 6})).ok());
  for (const auto& wait : waits) CHECK(wait->status.get().ok());
}

}  // namespace
}  // namespace skrull::testing
