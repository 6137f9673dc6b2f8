#include "skrull/server/length_quota.h"

#include <catch2/catch.hpp>
#include <string>

#include "skrull/planner/error.h"
#include "skrull/server/plan_client.h"
#include "skrull/tests/server/observe/manual_clock.h"

namespace skrull {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("LengthQuota: a burst, then the rate", "[server][quota]") {
  testing::ManualClock clock;
  LengthQuota quota(100, &clock);
  // Ten seconds' worth at once, in batches of 300; the one that exceeds it
  // still passes.
  for (int i = 0; i < 4; ++i) {
    REQUIRE(quota.Check("a").ok());
    quota.Charge("a", 300);
  }
  const absl::Status status = quota.Check("a");
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(GetErrorDetail(status)->reason == ErrorReason::kQuotaExceeded);
  CHECK(GetErrorDetail(status)->limit == 100);
  CHECK(GetErrorDetail(status)->retry_after_seconds == Approx(2));
  CHECK(quota.Check("b").ok());
  clock.Advance(milliseconds(1999));
  CHECK_FALSE(quota.Check("a").ok());
  clock.Advance(milliseconds(2));
  CHECK(quota.Check("a").ok());
  // Over a long time it is the rate that passes.
  int64_t passed = 0;
  for (int i = 0; i < 10000; ++i) {
    if (quota.Check("a").ok()) {
      quota.Charge("a", 70);
      passed += 70;
    }
    clock.Advance(milliseconds(100));
  }
  CHECK(passed >= 100'000 - 70);
  CHECK(passed <= 100'000 + 70);
}

TEST_CASE("LengthQuota: no more than the burst is saved up",
          "[server][quota]") {
  testing::ManualClock clock;
  LengthQuota quota(100, &clock);
  quota.Charge("a", 1);
  clock.Advance(seconds(100000));
  quota.Charge("a", 1001);
  CHECK_FALSE(quota.Check("a").ok());
}

TEST_CASE("LengthQuota: clients are forgotten when they are square again",
          "[server][quota]") {
  testing::ManualClock clock;
  LengthQuota quota(100, &clock);
  quota.Charge("debtor", 1'000'000);
  for (int i = 0; i < 1000; ++i) {
    quota.Charge(std::to_string(i), 1);
    clock.Advance(milliseconds(20));
  }
  CHECK(quota.clients() <= 64);
  CHECK_FALSE(quota.Check("debtor").ok());
}

TEST_CASE("LengthQuota: 0 is none", "[server][quota]") {
  testing::ManualClock clock;
  LengthQuota quota(0, &clock);
  quota.Charge("a", INT64_MAX);
  CHECK(quota.Check("a").ok());
  CHECK(quota.clients() == 0);
}

TEST_CASE("PlanClient: who has turns, and who has quotas", "[server][quota]") {
  const PlanOrigin anonymous{.peer = "10.0.0.5"};
  const PlanOrigin known{.who = {.subject = "team"}, .peer = "10.0.0.5"};
  CHECK(ClientOf(anonymous, "run") == ClientOf({.peer = "10.0.0.6"}, "run"));
  CHECK(ClientOf(anonymous, "run") != ClientOf(anonymous, "run2"));
  CHECK(ClientOf(anonymous, "") != ClientOf({.peer = "10.0.0.6"}, ""));
  CHECK(ClientOf(known, "run") == ClientOf(known, "run2"));
  CHECK(ClientOf(known, "run") == ClientOf(known, ""));
  // Names that look alike are not the same client.
  CHECK(ClientOf(anonymous, "10.0.0.5") != ClientOf(anonymous, ""));
  CHECK(ClientOf(anonymous, "team") != ClientOf(known, "run"));

  CHECK(ShareOf(known, "run") != ShareOf(known, "run2"));
  CHECK(ShareOf(known, "run") != ShareOf({.who = {.subject = "other"}}, "run"));
  CHECK(ShareOf(anonymous, "run") == ShareOf({.peer = "10.0.0.6"}, "run"));
}

TEST_CASE("PlanClient: the host of a peer", "[server][quota]") {
  CHECK(PeerHost("ipv4:10.0.0.5:4711") == "10.0.0.5");
  CHECK(PeerHost("ipv6:[::1]:4711") == "::1");
  CHECK(PeerHost("ipv6:%5Bfe80::1%5D:4711") == "fe80::1");
  CHECK(PeerHost("unix:") == "unix:");
  CHECK(PeerHost("unix:/run/skrull.sock") == "unix:/run/skrull.sock");
  CHECK(PeerHost("") == "");
}

}  // namespace
}  // namespace skrull
