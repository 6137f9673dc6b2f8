// A rendezvous over a pool that is there.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/gathered_rendezvous.h"
#include "skrull/cuda/in_process/in_process_pool.h"

namespace skrull::exec::testing {
namespace {

constexpr auto kLimit = std::chrono::seconds(120);

// Each rank's answers to offers that rank 0 makes one after another.
using Answers = std::vector<std::vector<Result<std::string>>>;
Answers MeetAll(int32_t ranks, const std::vector<std::string>& offers,
                int32_t absent = -1) {
  InProcessPool pool(ranks, {.time_limit = kLimit});
  Answers answers(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorSet* const set = pool.communicators(rank);
      if (rank == absent) {
        set->Abort({StatusCode::kAborted, "no library"});
        return;
      }
      CpuDevice device;
      auto gather = AllGatherOverPool(&device, set, kLimit);
      if (!gather.ok()) return;
      const Rendezvous meet =
          GatheredRendezvous(rank, ranks, *std::move(gather));
      for (const std::string& offer : offers) {
        answers[static_cast<size_t>(rank)].push_back(
            meet(rank == 0 ? offer : ""));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

std::string RandomBytes(size_t size) {
  std::mt19937_64 random(size);
  std::string bytes;
  while (bytes.size() < size) bytes += static_cast<char>(random());
  return bytes;
}

}  // namespace

TEST_CASE("GatheredRendezvous: all ranks get what rank 0 offers",
          "[rendezvous]") {
  std::vector<std::string> offers;
  for (const int size : {0, 1, 31, 32, 33, 128, 4095, 4096}) {
    offers.push_back(RandomBytes(static_cast<size_t>(size)));
  }
  for (const int32_t ranks : {1, 2, 5}) {
    for (const auto& of_rank : MeetAll(ranks, offers)) {
      REQUIRE(of_rank.size() == offers.size());
      for (size_t i = 0; i < offers.size(); ++i) {
        INFO(of_rank[i].status().ToString());
        REQUIRE(of_rank[i].ok());
        const bool same = *of_rank[i] == offers[i];
        CHECK(same);
      }
    }
  }
}

TEST_CASE("GatheredRendezvous: an offer that is too long is all ranks' error",
          "[rendezvous]") {
  // And the next one is met.
  for (const auto& of_rank : MeetAll(3, {RandomBytes(4097), "next"})) {
    REQUIRE(of_rank.size() == 2);
    CHECK(of_rank[0].status().code() == StatusCode::kInvalidArgument);
    CHECK_THAT(of_rank[0].status().message(), Catch::Contains("4097 bytes"));
    REQUIRE(of_rank[1].ok());
    CHECK(*of_rank[1] == "next");
  }
}

TEST_CASE("GatheredRendezvous: a rank that fails before leaves none waiting",
          "[rendezvous]") {
  const Answers answers = MeetAll(3, {"offer"}, /*absent=*/2);
  for (size_t rank = 0; rank < 2; ++rank) {
    REQUIRE(answers[rank].size() == 1);
    CHECK(answers[rank][0].status().code() == StatusCode::kAborted);
    CHECK_THAT(answers[rank][0].status().message(),
               Catch::Contains("no library"));
  }
}

}  // namespace skrull::exec::testing
