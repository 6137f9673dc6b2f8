// GetRankPlan through a real daemon: waiting, and all the ways a wait ends.
#include <algorithm>
#include <catch2/catch.hpp>

#include "skrull/tests/server/service_test_util.h"

namespace skrull::testing {
namespace {

bool WaitsBecome(const Daemon& daemon, int count) {
  return Eventually(
      [&] { return daemon.Metric("skrull_rank_waits") == count; });
}

TEST_CASE("Service: 1,024 waiting ranks all get their shares of one plan",
          "[server][service]") {
  constexpr int kRanks = 1024;
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(kRanks / 8, 8, 1000)).ok());
  std::vector<std::unique_ptr<Pending<v1::RankPlan>>> calls;
  for (int rank = 0; rank < kRanks; ++rank) {
    calls.push_back(client.StartRankPlan("run", 5, rank));
  }
  REQUIRE(WaitsBecome(daemon, kRanks));
  std::vector<int64_t> lengths;
  for (int64_t k = 0; k < 3000; ++k) lengths.push_back(1 + k * k % 2500);
  v1::PlanBatchResponse response;
  REQUIRE(client.Plan(Batch("run", 5, lengths), &response).ok());

  std::vector<int64_t> held(lengths.size(), 0);  // tokens, by sequence
  for (int rank = 0; rank < kRanks; ++rank) {
    Pending<v1::RankPlan>& call = *calls[static_cast<size_t>(rank)];
    const grpc::Status status = call.status.get();
    REQUIRE(status.ok());
    const v1::RankPlan& share = call.response;
    CHECK(share.rank() == rank);
    CHECK(share.digest() == response.plan().digest());
    REQUIRE(share.micro_batches_size() == response.plan().micro_batches_size());
    for (const v1::RankMicroBatch& micro_batch : share.micro_batches()) {
      for (const v1::RankSegment& segment : micro_batch.segments()) {
        held[static_cast<size_t>(segment.sequence())] +=
            segment.low().end() - segment.low().begin() + segment.high().end() -
            segment.high().begin();
      }
    }
  }
  CHECK(held == lengths);
  CHECK(daemon.Metric("skrull_rank_waits") == 0);
  // And at once, now that the plan stands.
  v1::RankPlan again;
  REQUIRE(client.RankPlan("run", 5, 77, &again).ok());
  CHECK(again.SerializeAsString() == calls[77]->response.SerializeAsString());
}

TEST_CASE("Service: a wait ends at its deadline", "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 100)).ok());
  const auto call =
      client.StartRankPlan("run", 31, 1, std::chrono::milliseconds(800));
  CHECK(call->status.get().error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  CHECK(WaitsBecome(daemon, 0));
}

TEST_CASE("Service: a wait that times out names what it waited for",
          "[server][service]") {
  // The daemon's own limit, so that its answer is not cut off by the client's.
  Daemon daemon({"--max_wait_seconds=0.5"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 100)).ok());
  const grpc::Status status = client.RankPlan("run", 31, 0);
  CHECK(status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  CHECK(DetailOf(status).reason() == "DEADLINE_EXCEEDED");
  INFO(status.error_message());
  for (const char* part : {"job run", "step 31", "attempt 0"}) {
    CHECK(status.error_message().find(part) != std::string::npos);
  }
}

TEST_CASE("Service: a caller that goes away waits no longer",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 100)).ok());
  const auto gone = client.StartRankPlan("run", 1, 0);
  const auto stays = client.StartRankPlan("run", 1, 1);
  REQUIRE(WaitsBecome(daemon, 2));
  gone->context.TryCancel();
  CHECK(gone->status.get().error_code() == grpc::StatusCode::CANCELLED);
  REQUIRE(WaitsBecome(daemon, 1));
  REQUIRE(client.Plan(Batch("run", 1, {1, 2, 3})).ok());
  CHECK(stays->status.get().ok());
}

TEST_CASE("Service: deleting or replacing a job ends its waits",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 100)).ok());
  REQUIRE(client.CreateJob("other", SmallSpec(1, 2, 100)).ok());
  const auto other = client.StartRankPlan("other", 1, 0);
  const auto first = client.StartRankPlan("run", 1, 0);
  REQUIRE(WaitsBecome(daemon, 2));
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100), 2).ok());
  const grpc::Status replaced = first->status.get();
  CHECK(replaced.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(DetailOf(replaced).reason() == "GENERATION_MISMATCH");

  const auto second = client.StartRankPlan("run", 1, 3);
  REQUIRE(WaitsBecome(daemon, 2));
  REQUIRE(client.DeleteJob("run").ok());
  const grpc::Status deleted = second->status.get();
  CHECK(deleted.error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(DetailOf(deleted).reason() == "JOB_NOT_FOUND");

  CHECK(daemon.Metric("skrull_rank_waits") == 1);
  REQUIRE(client.Plan(Batch("other", 1, {1})).ok());
  CHECK(other->status.get().ok());
}

TEST_CASE("Service: a job created anew has none of the old one's plans",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 100)).ok());
  REQUIRE(client.Plan(Batch("run", 1, {1, 2, 3})).ok());
  REQUIRE(client.RankPlan("run", 1, 0).ok());
  REQUIRE(client.DeleteJob("run").ok());
  CHECK(DetailOf(client.RankPlan("run", 1, 0)).reason() == "JOB_NOT_FOUND");
  // The same name and generation, another life.
  REQUIRE(client.CreateJob("run", SmallSpec(1, 4, 100)).ok());
  const auto wait = client.StartRankPlan("run", 1, 3);
  REQUIRE(WaitsBecome(daemon, 1));
  REQUIRE(client.Plan(Batch("run", 1, {4, 5})).ok());
  REQUIRE(wait->status.get().ok());
  CHECK(wait->response.batch_token_count() == 9);
}

TEST_CASE("Service: ranks outside the pool and too many waits are refused",
          "[server][service]") {
  Daemon daemon({"--max_waiting_calls=2"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100)).ok());
  for (const int rank : {-1, 4}) {
    const grpc::Status status = client.RankPlan("run", 1, rank);
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(DetailOf(status).field() == "rank");
    CHECK(DetailOf(status).limit() == 3);
  }
  const auto first = client.StartRankPlan("run", 1, 0);
  const auto second = client.StartRankPlan("run", 1, 1);
  REQUIRE(WaitsBecome(daemon, 2));
  const grpc::Status status = client.RankPlan("run", 1, 2);
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(DetailOf(status).reason() == "LIMIT_EXCEEDED");
  REQUIRE(client.Plan(Batch("run", 1, {1})).ok());
  CHECK(first->status.get().ok());
  CHECK(second->status.get().ok());
}

}  // namespace
}  // namespace skrull::testing
