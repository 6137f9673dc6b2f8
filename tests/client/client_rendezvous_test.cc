// PlannerClient::Rendezvous with a real daemon: ranks that are late, a daemon
// that dies.
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <thread>

#include "skrull/client/planner_client.h"
#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Daemon;
using testing::TempDir;
using Offer = absl::StatusOr<std::string>;

std::string SpecText() {
  return testing::ReadFile(testing::ExampleJob("qwen2.5-0.5b"));
}

std::unique_ptr<PlannerClient> ClientOf(const std::string& address) {
  auto client = PlannerClient::Create({.address = address});
  REQUIRE(client.ok());
  return *std::move(client);
}

std::future<Offer> Come(PlannerClient* client, int32_t size, int32_t rank,
                        std::chrono::milliseconds timeout = seconds(60)) {
  return std::async(std::launch::async, [=] {
    return client->Rendezvous(
        {.job = "run7",
         .generation = 1,
         .key = "world",
         .size = size,
         .rank = rank,
         .offer = rank == 0 ? std::string("\0id\xff", 4) : ""},
        {.timeout = timeout});
  });
}

TEST_CASE("PlannerClient: ranks meet and get rank 0's bytes",
          "[client][daemon]") {
  Daemon daemon;
  const auto client = ClientOf(daemon.address());
  REQUIRE(client->CreateJob("run7", SpecText()).ok());
  std::vector<std::future<Offer>> ranks;
  for (int32_t rank = 0; rank < 8; ++rank) {
    ranks.push_back(Come(client.get(), 8, rank));
  }
  for (auto& rank : ranks) {
    const Offer offer = rank.get();
    INFO(offer.status());
    REQUIRE(offer.ok());
    CHECK(*offer == std::string("\0id\xff", 4));
  }
}

TEST_CASE("PlannerClient: a rendezvous without all ranks names the missing",
          "[client][daemon]") {
  Daemon daemon;
  const auto client = ClientOf(daemon.address());
  REQUIRE(client->CreateJob("run7", SpecText()).ok());
  auto first = Come(client.get(), 3, 0);
  auto second = Come(client.get(), 3, 2, milliseconds(2000));
  for (auto* rank : {&first, &second}) {
    const absl::Status status = rank->get().status();
    INFO(status);
    CHECK(absl::IsDeadlineExceeded(status));
    REQUIRE(GetRefusalDetail(status));
    CHECK(GetRefusalDetail(status)->indices == std::vector<int64_t>{1});
  }
  const absl::Status stale = client
                                 ->Rendezvous({.job = "run7",
                                               .generation = 7,
                                               .key = "world",
                                               .size = 1,
                                               .offer = "x"})
                                 .status();
  CHECK(absl::IsFailedPrecondition(stale));
  CHECK(GetRefusalDetail(stale)->reason == "GENERATION_MISMATCH");
}

TEST_CASE("PlannerClient: a rendezvous survives a daemon that is killed",
          "[client][daemon]") {
  const TempDir directory;
  const std::string store =
      "--store=sqlite:" + (directory.path() / "skrull.db").string();
  auto daemon = std::make_unique<Daemon>(std::vector<std::string>{store});
  const std::string address = daemon->address();
  const auto client = ClientOf(address);
  REQUIRE(client->CreateJob("run7", SpecText()).ok());
  auto first = Come(client.get(), 3, 0);
  auto second = Come(client.get(), 3, 2);
  const auto limit = std::chrono::steady_clock::now() + seconds(30);
  while (daemon->Metric("skrull_rendezvous_waits") < 2) {
    REQUIRE(std::chrono::steady_clock::now() < limit);
    std::this_thread::sleep_for(milliseconds(5));
  }
  daemon->Kill();
  daemon = std::make_unique<Daemon>(
      std::vector<std::string>{store, "--listen_address=" + address});
  auto third = Come(client.get(), 3, 1);
  for (auto* rank : {&first, &second, &third}) {
    const Offer offer = rank->get();
    INFO(offer.status());
    CHECK(offer.ok());
  }
}

TEST_CASE("PlannerClient: a rendezvous ends when its daemon stays away",
          "[client][daemon]") {
  auto daemon = std::make_unique<Daemon>();
  auto client = PlannerClient::Create(
      {.address = daemon->address(), .unreachable_after = milliseconds(300)});
  REQUIRE(client.ok());
  REQUIRE((*client)->CreateJob("run7", SpecText()).ok());
  auto rank = Come(client->get(), 2, 0);
  const auto limit = std::chrono::steady_clock::now() + seconds(30);
  while (daemon->Metric("skrull_rendezvous_waits") < 1) {
    REQUIRE(std::chrono::steady_clock::now() < limit);
    std::this_thread::sleep_for(milliseconds(5));
  }
  daemon->Kill();
  CHECK(absl::IsUnavailable(rank.get().status()));
}

}  // namespace
}  // namespace skrull
