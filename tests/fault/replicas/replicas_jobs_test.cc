// Jobs that are deleted and created on one replica, as the others see them.
#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>
#include <vector>

#include "skrull/tests/fault/replicas/replicas.h"

namespace skrull::testing {
namespace {

TEST_CASE("Replicas: what one acknowledged about a job holds on all at once",
          "[fault][replicas]") {
  Replicas replicas;
  std::vector<std::unique_ptr<PlannerClient>> clients;
  for (int i = 0; i < Replicas::kCount; ++i) {
    clients.push_back(ClientOf(replicas.address(i)));
  }
  // The same name and generation, and another spec each time.
  for (int life = 1; life <= 12; ++life) {
    PlannerClient& changer = *clients[static_cast<size_t>(life) % 3];
    REQUIRE(changer.DeleteJob(kJob).ok());
    for (const auto& client : clients) {
      CHECK(absl::IsNotFound(client->GetJob(kJob).status()));
    }
    REQUIRE(changer.CreateJob(kJob, SpecText(life % 2)).ok());
    for (const auto& client : clients) {
      const auto plan = client->PlanBatch({.job = kJob,
                                           .generation = 1,
                                           .step = 1,
                                           .lengths = LengthsOf(1, 0)});
      INFO(plan.status());
      REQUIRE(plan.ok());
      CHECK(plan->plan_bytes == PlanBytes(life % 2, 1, 0));
    }
  }
}

TEST_CASE("Replicas: no plan of an old life under load", "[fault][replicas]") {
  Replicas replicas;
  // The life in force; odd = changing. A call between two reads of the same
  // even number fell into that life as a whole.
  std::atomic<int> phase = 0;
  std::atomic<bool> stopping = false;
  std::atomic<int> wrong = 0;
  std::atomic<int> right = 0;
  std::atomic<int> seen_in_phase = 0;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&] {
      const auto client = ClientOf(replicas.addresses());
      for (int64_t i = 0; !stopping; ++i) {
        const int64_t step = i % 8;
        const int before = phase;
        const auto plan = client->PlanBatch({.job = kJob,
                                             .generation = 1,
                                             .step = step,
                                             .lengths = LengthsOf(step, 0)});
        const int after = phase;
        if (before != after || before % 2 == 1) continue;
        const bool as_it_should =
            plan.ok() && plan->plan_bytes == PlanBytes(before / 2 % 2, step, 0);
        ++(as_it_should ? right : wrong);
        ++seen_in_phase;
        seen_in_phase.notify_all();
      }
    });
  }
  for (int64_t step = 0; step < 8; ++step) {  // so that none is made meanwhile
    for (int variant : {0, 1}) (void)PlanBytes(variant, step, 0);
  }
  for (int life = 1; life <= 10; ++life) {
    for (int seen = seen_in_phase; seen < 10; seen = seen_in_phase) {
      seen_in_phase.wait(seen);
    }
    const auto client = ClientOf(replicas.address(life % 3));
    ++phase;
    const absl::Status deleted = client->DeleteJob(kJob);
    const absl::Status created =
        client->CreateJob(kJob, SpecText(life % 2)).status();
    if (!deleted.ok() || !created.ok()) {
      CHECK(deleted == absl::OkStatus());
      CHECK(created == absl::OkStatus());
      break;
    }
    seen_in_phase = 0;
    ++phase;
  }
  stopping = true;
  threads.clear();
  CHECK(wrong == 0);
  CHECK(right > 90);
}

TEST_CASE("Replicas: one that slept through a compaction of etcd catches up",
          "[fault][replicas]") {
  Replicas replicas;
  const auto awake = ClientOf(replicas.address(0));
  ::kill(replicas.daemon(2).pid(), SIGSTOP);
  // So that it must take up its watch again where it was.
  replicas.etcd().Kill(0);
  replicas.etcd().Start(0);
  REQUIRE(awake->CreateJob("other", SpecText(0)).ok());
  REQUIRE(awake->DeleteJob(kJob).ok());
  REQUIRE(awake->CreateJob(kJob, SpecText(1)).ok());
  replicas.etcd().Compact();
  ::kill(replicas.daemon(2).pid(), SIGCONT);

  const auto woken = ClientOf(replicas.address(2));
  CHECK(woken->ListJobs()->size() == 2);
  const auto plan = woken->PlanBatch(
      {.job = kJob, .generation = 1, .step = 1, .lengths = LengthsOf(1, 0)});
  INFO(plan.status());
  REQUIRE(plan.ok());
  CHECK(plan->plan_bytes == PlanBytes(1, 1, 0));
}

TEST_CASE("Replicas: ranks meet through clients of all replicas",
          "[fault][replicas]") {
  Replicas replicas;
  const std::string orders[] = {
      replicas.addresses(), replicas.address(2) + "," + replicas.address(1) +
                                "," + replicas.address(0)};
  for (int killed = -1; killed < 1; ++killed) {
    if (killed >= 0) replicas.Kill(killed);
    for (int key = 0; key < 4; ++key) {  // each may select another replica
      std::vector<std::future<absl::StatusOr<std::string>>> ranks;
      for (int32_t rank = 0; rank < 4; ++rank) {
        ranks.push_back(std::async(std::launch::async, [&, rank, key] {
          const auto client = ClientOf(orders[rank % 2]);
          return client->Rendezvous({.job = kJob,
                                     .generation = 1,
                                     .key = "world" + std::to_string(key),
                                     .size = 4,
                                     .rank = rank,
                                     .offer = rank == 0 ? "id" : ""});
        }));
      }
      for (auto& rank : ranks) {
        const auto offer = rank.get();
        INFO(offer.status());
        REQUIRE(offer.ok());
        CHECK(*offer == "id");
      }
    }
  }
}

}  // namespace
}  // namespace skrull::testing
