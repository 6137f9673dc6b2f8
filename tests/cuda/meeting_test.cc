// What a meeting promises to the owner of memory that others look at.
#include "skrull/cuda/in_process/meeting.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "skrull/cuda/first_failure.h"

namespace skrull::exec::testing {

TEST_CASE("Meeting: nobody leaves while another looks, even after a failure",
          "[in_process]") {
  FirstFailure failure;
  Meeting meeting(0, 2, std::chrono::minutes(5), &failure);
  std::atomic<int> entered = 0;
  std::atomic<bool> failed = false;
  std::atomic<bool> left = false;
  bool left_too_early = false;
  Status of_looker;
  std::thread looker([&] {
    of_looker = meeting.Enter(0, {"x", nullptr});
    ++entered;
    while (!failed) std::this_thread::yield();
    // A wrong Leave would come back in this time, most likely.
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
    while (std::chrono::steady_clock::now() < end) left_too_early |= left;
    (void)meeting.Leave(0);
  });
  Status of_owner;
  std::thread owner([&] {
    of_owner = meeting.Enter(1, {"x", nullptr});
    ++entered;
    of_owner = meeting.Leave(1);
    left = true;
  });
  while (entered < 2) std::this_thread::yield();
  failure.Set({StatusCode::kAborted, "enough"});
  meeting.Wake();
  failed = true;
  looker.join();
  owner.join();
  CHECK(of_looker.ok());
  CHECK(of_owner == Status(StatusCode::kAborted, "enough"));
  CHECK_FALSE(left_too_early);
}

TEST_CASE("Meeting: a failure before it lets nobody in", "[in_process]") {
  FirstFailure failure;
  Meeting meeting(0, 2, std::chrono::minutes(5), &failure);
  failure.Set({StatusCode::kAborted, "enough"});
  CHECK(meeting.Enter(0, {"x", nullptr}).message() == "enough");
  CHECK_FALSE(failure.Set({StatusCode::kInternal, "again"}));
  CHECK(failure.Get().message() == "enough");
}

// A rank that throws while it looks fails alone, and keeps nobody.
TEST_CASE("Meeting: a visit ends with its scope", "[in_process]") {
  FirstFailure failure;
  Meeting meeting(0, 2, std::chrono::minutes(5), &failure);
  Status of_owner;
  std::thread owner([&] {
    Visit visit(&meeting, 1);
    of_owner = visit.Enter({"x", nullptr});
    if (of_owner.ok()) of_owner = visit.Leave();
  });
  {
    Visit visit(&meeting, 0);
    CHECK(visit.Enter({"x", nullptr}).ok());
    CHECK(visit.Of(1).what == "x");
  }
  failure.Set({StatusCode::kOutOfMemory, "threw"});
  meeting.Wake();
  owner.join();
  CHECK(of_owner.code() == StatusCode::kOutOfMemory);
}

}  // namespace skrull::exec::testing
