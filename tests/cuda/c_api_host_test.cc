// Communicators of processes through the C interface.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "skrull/cuda/c_api/skrull_exec.h"
#include "skrull/tests/cuda/c_api_meeting.h"
#include "skrull/tests/cuda/c_api_rank.h"

namespace skrull::exec::testing {
TEST_CASE("C API: ranks meet as processes do", "[c_api]") {
  Meeting meeting;
  std::vector<skrull_comm*> comms(2, nullptr);
  const auto made = OnRanks(2, [&](int32_t rank) {
    const skrull_comm_options options = HostOptions(rank, 2, &meeting);
    return skrull_comm_create(&options, &comms[static_cast<size_t>(rank)]);
  });
  for (const Answer& answer : made) {
    INFO(answer.message);
    REQUIRE(answer.code == SKRULL_OK);
  }
  skrull_comm_options joining = CommOptions(0, 2, comms[0]);
  skrull_comm* joined = nullptr;
  CheckRefused(skrull_comm_create(&joining, &joined), "peer");
  std::vector<std::unique_ptr<CRank>> ranks;
  for (skrull_comm* comm : comms) {
    ranks.push_back(std::make_unique<CRank>(comm));
  }
  const auto disagreed = OnRanks(2, [&](int32_t rank) {
    return ranks[static_cast<size_t>(rank)]->Prepare(
        kTwoRanks.ForRank(rank), 2, rank == 1 ? std::string(64, 'e') : kDigest);
  });
  for (const Answer& answer : disagreed) {
    CHECK(answer.code == SKRULL_FAILED_PRECONDITION);
  }
  const auto agreed = OnRanks(2, [&](int32_t rank) {
    CRank& me = *ranks[static_cast<size_t>(rank)];
    return me.Prepare(kTwoRanks.ForRank(rank), 2);
  });
  for (const Answer& answer : agreed) {
    INFO(answer.message);
    CHECK(answer.code == SKRULL_OK);
  }
}

TEST_CASE("C API: a rendezvous that fails says so", "[c_api]") {
  Meeting meeting;
  skrull_comm_options options = HostOptions(0, 2, nullptr);
  skrull_comm* comm = nullptr;
  options.rendezvous = nullptr;
  CheckRefused(skrull_comm_create(&options, &comm), "rendezvous is NULL");
  options = HostOptions(0, 2, &meeting);
  meeting.fail_with = SKRULL_DEADLINE_EXCEEDED;
  CHECK(skrull_comm_create(&options, &comm) == SKRULL_DEADLINE_EXCEEDED);
  CHECK_THAT(skrull_exec_last_error(), Catch::Contains("rendezvous: nobody"));
  meeting.fail_with = 77;
  CHECK(skrull_comm_create(&options, &comm) == SKRULL_INTERNAL);
  CHECK(comm == nullptr);
}

}  // namespace skrull::exec::testing
