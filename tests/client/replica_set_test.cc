// Clients that know several replicas: fakes in this process, and addresses that
// nobody listens on.
#include "skrull/client/internal/replica_set.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "skrull/client/planner_client.h"
#include "skrull/tests/client/fake_planner.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;
using client_internal::CheckAddress;
using client_internal::ReplicaSet;
using std::chrono::seconds;
using testing::FakePlanner;

// A fake whose GetJob counts its calls and answers with `status`.
struct CountingPlanner {
  FakePlanner fake;
  int calls = 0;
  grpc::Status status;

  CountingPlanner() {
    fake.get_job = [this](v1::Job* job) {
      ++calls;
      job->set_name("run");
      return status;
    };
  }
  int count() {
    const std::lock_guard<std::mutex> lock(fake.mutex());
    return calls;
  }
};

std::unique_ptr<PlannerClient> ClientOf(const std::string& address) {
  return PlannerClient::Create({.address = address, .timeout = seconds(60)})
      .value();
}

TEST_CASE("PlannerClient: takes replicas in turn", "[client][replicas]") {
  CountingPlanner a;
  CountingPlanner b;
  const auto client = ClientOf(a.fake.address() + "," + b.fake.address());
  for (int i = 0; i < 100 && (a.count() == 0 || b.count() == 0); ++i) {
    REQUIRE(client->GetJob("run").ok());
  }
  const int before_a = a.count();
  const int before_b = b.count();
  for (int i = 0; i < 10; ++i) REQUIRE(client->GetJob("run").ok());
  CHECK(a.count() - before_a == 5);
  CHECK(b.count() - before_b == 5);
}

TEST_CASE("PlannerClient: a replica that refuses costs one attempt, no wait",
          "[client][replicas]") {
  CountingPlanner refuses;
  CountingPlanner serves;
  refuses.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining");
  // A client that may not wait at all, and not try the same one again.
  const auto client =
      PlannerClient::Create({.address = refuses.fake.address() + "," +
                                        serves.fake.address() + ",127.0.0.1:1",
                             .timeout = seconds(60),
                             .initial_backoff = seconds(5),
                             .max_backoff = seconds(5)})
          .value();
  for (int i = 0; i < 20; ++i) CHECK(client->GetJob("run").ok());
  CHECK(serves.count() == 20);
  CHECK(refuses.count() > 0);
}

TEST_CASE("PlannerClient: what a replica decides is not asked of another",
          "[client][replicas]") {
  CountingPlanner a;
  CountingPlanner b;
  a.status = b.status = grpc::Status(grpc::StatusCode::NOT_FOUND, "no job");
  const auto client = ClientOf(a.fake.address() + "," + b.fake.address());
  CHECK(absl::IsNotFound(client->GetJob("run").status()));
  CHECK(a.count() + b.count() == 1);
}

TEST_CASE("PlannerClient: refuses lists with a hole or a repetition",
          "[client][replicas]") {
  CHECK(CheckAddress("a:1").ok());
  CHECK(CheckAddress("a:1,b:1,unix:/c").ok());
  for (const char* address : {"", ",", "a:1,", ",a:1", "a:1,,b:1"}) {
    CAPTURE(address);
    CHECK_THAT(std::string(CheckAddress(address).message()),
               Contains("address") && Contains("empty"));
  }
  CHECK_THAT(std::string(CheckAddress("a:1,b:1,a:1").message()),
             Contains("names a:1 twice"));
}

TEST_CASE("PlannerClient: no token in plain text to any replica that is remote",
          "[client][replicas]") {
  const auto refused = [](const std::string& address) {
    return absl::IsInvalidArgument(
        PlannerClient::Create({.address = address, .token = "secret"})
            .status());
  };
  CHECK(!refused("127.0.0.1:1,unix:/a,localhost:2"));
  CHECK(refused("127.0.0.1:1,example.com:2"));
  CHECK(refused("unix:/a,example.com:2"));
}

TEST_CASE("ReplicaSet: a key selects the same replica for all",
          "[client][replicas]") {
  const auto set_of = [](const std::string& address) {
    return std::make_unique<ReplicaSet>(
        address, grpc::InsecureChannelCredentials(), grpc::ChannelArguments());
  };
  const auto one = set_of("a:1,b:1,c:1");
  const auto other = set_of("c:1,a:1,b:1");
  std::set<std::string> selected;
  for (int key = 0; key < 64; ++key) {
    std::set<std::string> choices;
    for (int choice = 0; choice < 3; ++choice) {
      const std::string name = "key " + std::to_string(key);
      CHECK(one->AddressForKey(name, choice) ==
            other->AddressForKey(name, choice));
      choices.insert(one->AddressForKey(name, choice));
    }
    CHECK(choices.size() == 3);
    selected.insert(one->AddressForKey("key " + std::to_string(key), 0));
  }
  CHECK(selected.size() == 3);
}

}  // namespace
}  // namespace skrull
