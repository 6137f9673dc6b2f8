// Rendezvous through a real daemon.
#include <catch2/catch.hpp>
#include <fstream>

#include "skrull/server/tsan.h"
#include "skrull/tests/server/service_test_util.h"

namespace skrull::testing {
namespace {

using Call = Pending<v1::RendezvousResponse>;

v1::RendezvousRequest Request(int size, int rank,
                              const std::string& offer = "") {
  v1::RendezvousRequest request;
  request.set_job("run");
  request.set_key("world");
  request.set_size(size);
  request.set_rank(rank);
  request.set_offer(offer);
  return request;
}

std::unique_ptr<Call> Start(
    Client& client, const v1::RendezvousRequest& request,
    std::chrono::milliseconds timeout = std::chrono::minutes(2)) {
  auto call = std::make_unique<Call>();
  call->context.set_deadline(std::chrono::system_clock::now() + timeout);
  TsanRelease(call.get());
  client.stub().async()->Rendezvous(
      &call->context, &request, &call->response,
      [raw = call.get()](const grpc::Status& status) {
        TsanAcquire(raw);
        raw->promise.set_value(status);
      });
  return call;
}

grpc::Status Refused(Client& client, const v1::RendezvousRequest& request) {
  return Start(client, request)->status.get();
}

bool WaitsBecome(const Daemon& daemon, int count) {
  return Eventually(
      [&] { return daemon.Metric("skrull_rendezvous_waits") == count; });
}

int ThreadsOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("Threads:", 0) == 0) return std::stoi(line.substr(8));
  }
  return -1;
}

TEST_CASE("Service: 1,024 ranks get rank 0's bytes, without a thread each",
          "[server][service]") {
  constexpr int kRanks = 1024;
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(kRanks / 8, 8, 1000)).ok());
  std::string offer(128, '\0');
  for (size_t i = 0; i < offer.size(); ++i) offer[i] = static_cast<char>(2 * i);
  std::vector<std::unique_ptr<Call>> calls;
  for (int rank = kRanks - 1; rank > 0; --rank) {
    calls.push_back(Start(client, Request(kRanks, rank)));
  }
  REQUIRE(WaitsBecome(daemon, kRanks - 1));
  CHECK(ThreadsOf(daemon.pid()) < 100);
  calls.push_back(Start(client, Request(kRanks, 0, offer)));
  for (const auto& call : calls) {
    REQUIRE(call->status.get().ok());
    REQUIRE(call->response.offer() == offer);
  }
  CHECK(daemon.Metric("skrull_rendezvous_waits") == 0);
  CHECK(daemon.Metric("skrull_rpcs_total{code=\"OK\",method=\"Rendezvous\"}") ==
        kRanks);
}

TEST_CASE("Service: a rank that never comes is named to those that did",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 4, 100)).ok());
  const auto r0 = Start(client, Request(4, 0, "id"));
  const auto r3 = Start(client, Request(4, 3));
  REQUIRE(WaitsBecome(daemon, 2));
  // The daemon answers a little before the caller's own clock cuts it off.
  const auto r1 = Start(client, Request(4, 1), std::chrono::milliseconds(3000));
  for (Call* call : {r0.get(), r3.get(), r1.get()}) {
    const grpc::Status status = call->status.get();
    INFO(status.error_message());
    CHECK(status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
    CHECK(DetailOf(status).reason() == "DEADLINE_EXCEEDED");
    REQUIRE(DetailOf(status).indices_size() == 1);
    CHECK(DetailOf(status).indices(0) == 2);
  }
  // Nothing is left of them: the job meets again under the same key.
  CHECK(daemon.Metric("skrull_rendezvous_waits") == 0);
  std::vector<std::unique_ptr<Call>> calls;
  for (int rank = 0; rank < 4; ++rank) {
    calls.push_back(Start(client, Request(4, rank, rank == 0 ? "new" : "")));
  }
  for (const auto& call : calls) {
    CHECK(call->status.get().ok());
    CHECK(call->response.offer() == "new");
  }
}

TEST_CASE("Service: a killed rank leaves, its successor takes its place",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 100)).ok());
  const auto r1 = Start(client, Request(2, 1));
  REQUIRE(WaitsBecome(daemon, 1));
  const auto gone = Start(client, Request(2, 1));  // the same rank once more
  CHECK(r1->status.get().error_code() == grpc::StatusCode::CANCELLED);
  gone->context.TryCancel();
  CHECK(gone->status.get().error_code() == grpc::StatusCode::CANCELLED);
  REQUIRE(WaitsBecome(daemon, 0));
  const auto r0 = Start(client, Request(2, 0, "id"));
  const auto back = Start(client, Request(2, 1));
  CHECK(r0->status.get().ok());
  CHECK(back->status.get().ok());
  CHECK(back->response.offer() == "id");
}

TEST_CASE("Service: an older generation is refused, and ends with its job",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 100)).ok());
  v1::RendezvousRequest request = Request(2, 0, "old");
  request.set_generation(1);
  const auto old = Start(client, request);
  REQUIRE(WaitsBecome(daemon, 1));
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 100), 2).ok());
  const grpc::Status ended = old->status.get();
  CHECK(ended.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(DetailOf(ended).reason() == "GENERATION_MISMATCH");
  CHECK(DetailOf(Refused(client, request)).reason() == "GENERATION_MISMATCH");

  request.set_generation(2);
  request.set_offer("new");
  const auto r0 = Start(client, request);
  const auto r1 = Start(client, Request(2, 1));  // any generation
  CHECK(r0->status.get().ok());
  CHECK(r1->status.get().ok());
  CHECK(r1->response.offer() == "new");
}

TEST_CASE("Service: refuses ranks that came with other terms",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 4, 100)).ok());
  const auto r0 = Start(client, Request(3, 0, "id"));
  REQUIRE(WaitsBecome(daemon, 1));
  const grpc::Status size = Refused(client, Request(4, 1));
  CHECK(size.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(DetailOf(size).reason() == "RENDEZVOUS_CONFLICT");
  CHECK(DetailOf(size).field() == "size");
  CHECK(DetailOf(Refused(client, Request(3, 0, "other"))).field() == "offer");
  const auto r1 = Start(client, Request(3, 1));
  const auto r2 = Start(client, Request(3, 2));
  for (const auto* call : {&r0, &r1, &r2}) {
    CHECK((*call)->status.get().ok());
    CHECK((*call)->response.offer() == "id");
  }
}

TEST_CASE("Service: refuses a rendezvous out of range and names the field",
          "[server][service]") {
  Daemon daemon({"--max_waiting_calls=1"});
  Client client(daemon.address());
  CHECK(DetailOf(Refused(client, Request(1, 0, "x"))).reason() ==
        "JOB_NOT_FOUND");
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100)).ok());
  struct Row {
    v1::RendezvousRequest request;
    const char* field;
  };
  std::vector<Row> rows = {{Request(0, 0, "x"), "size"},
                           {Request(5, 0, "x"), "size"},
                           {Request(-1, 0, "x"), "size"},
                           {Request(4, 4), "rank"},
                           {Request(4, -1), "rank"},
                           {Request(4, 0), "offer"},
                           {Request(4, 1, "x"), "offer"},
                           {Request(4, 0, std::string(4097, 'x')), "offer"},
                           {Request(4, 1), "key"},
                           {Request(4, 1), "key"},
                           {Request(4, 1), "job"}};
  rows[8].request.set_key("");
  rows[9].request.set_key(std::string(129, 'k'));
  rows[10].request.set_job("../etc");
  for (const Row& row : rows) {
    const grpc::Status status = Refused(client, row.request);
    INFO(status.error_message());
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(DetailOf(status).field() == row.field);
  }
  const auto largest = Start(client, Request(4, 0, std::string(4096, '\xff')));
  REQUIRE(WaitsBecome(daemon, 1));
  const grpc::Status full = Refused(client, Request(4, 1));
  CHECK(full.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(DetailOf(full).has_retry_after());
  largest->context.TryCancel();
  CHECK(largest->status.get().error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE("Service: SIGTERM ends a rendezvous that waits",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(1, 2, 100)).ok());
  const auto call = Start(client, Request(2, 1));
  REQUIRE(WaitsBecome(daemon, 1));
  daemon.Terminate();
  const grpc::Status status = call->status.get();
  CHECK(status.error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(DetailOf(status).reason() == "DRAINING");
  CHECK(daemon.Wait() == 0);
}

}  // namespace
}  // namespace skrull::testing
