// An etcd that dies, hangs, comes back, forgets, or loses members.
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "skrull/server/store_rules.h"
#include "skrull/tests/server/etcd/etcd_test_util.h"
#include "skrull/tests/server/store_test_util.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;
using testing::BecomeCurrent;
using testing::Changes;
using testing::Etcd;
using testing::PlanOf;
using testing::ReasonOf;
using testing::Wanted;

constexpr int64_t kManySteps = 1000;
using Names = std::vector<std::string>;

std::unique_ptr<Store> Open(const Etcd& etcd, double timeout_seconds) {
  StoreOptions options;
  options.etcd_timeout_seconds = timeout_seconds;
  absl::StatusOr<std::unique_ptr<Store>> store =
      OpenStore(etcd.uri("p"), options);
  REQUIRE(store.ok());
  return *std::move(store);
}

TEST_CASE("EtcdStore: fails while etcd is gone, and goes on when it is back",
          "[server][store][etcd]") {
  Etcd etcd;
  const auto store = Open(etcd, 1.0);
  const auto other = Open(etcd, 20.0);
  Changes changes;
  changes.Watch(store.get());
  REQUIRE(other->Create(Wanted("run", 0), {}).ok());
  const PlanRecord plan = PlanOf("run", 1, 1);
  REQUIRE(store->Commit(plan, kManySteps).ok());

  const bool hangs = GENERATE(false, true);
  CAPTURE(hangs);
  hangs ? etcd.Freeze(0) : etcd.Kill(0);
  CHECK(ReasonOf(BecomeCurrent(store.get())) == ErrorReason::kStoreFailed);
  const absl::Status commit =
      store->Commit(PlanOf("run", 1, 2), kManySteps).status();
  CHECK(ReasonOf(commit) == ErrorReason::kStoreFailed);
  CHECK_THAT(std::string(commit.message()), Contains(etcd.endpoints()));
  CHECK(ReasonOf(store->Find(plan.key, 1).status()) ==
        ErrorReason::kStoreFailed);
  CHECK(ReasonOf(store->Delete({"run"})) == ErrorReason::kStoreFailed);
  hangs ? etcd.Thaw(0) : etcd.Start(0);

  // The delete that was given up may have reached an etcd that only hung.
  other->Create(Wanted("run", 0), {}).IgnoreError();
  const absl::StatusOr<JobRecord> created =
      other->Create(Wanted("later", 0), {});
  REQUIRE(created.ok());
  absl::Status current = BecomeCurrent(store.get());
  while (!current.ok()) current = BecomeCurrent(store.get());
  CHECK(changes.Last() == Names{"later 1", "run 1"});
  CHECK(store->Commit(PlanOf("later", 1, 2), kManySteps).ok());
}

TEST_CASE("EtcdStore: a call rides out a restart of etcd",
          "[server][store][etcd]") {
  Etcd etcd;
  const auto store = Open(etcd, 60.0);
  Changes changes;
  changes.Watch(store.get());
  REQUIRE(store->Create(Wanted("run", 0), {}).ok());
  REQUIRE(BecomeCurrent(store.get()).ok());
  etcd.Kill(0);
  auto commit = std::async(std::launch::async, [&] {
    return store->Commit(PlanOf("run", 1, 1), kManySteps).status();
  });
  auto current = std::async(std::launch::async,
                            [&] { return BecomeCurrent(store.get()); });
  etcd.Start(0);
  CHECK(commit.get() == absl::OkStatus());
  CHECK(current.get() == absl::OkStatus());
}

TEST_CASE("EtcdStore: one of three members may die or hang",
          "[server][store][etcd]") {
  Etcd etcd({.members = 3});
  const auto store = Open(etcd, 30.0);
  Changes changes;
  changes.Watch(store.get());
  REQUIRE(store->Create(Wanted("run", 0), {}).ok());
  for (int member = 0; member < 3; ++member) {
    CAPTURE(member);
    const bool hangs = member == 1;
    hangs ? etcd.Freeze(member) : etcd.Kill(member);
    const PlanRecord plan = PlanOf("run", 1, member);
    CHECK(store->Commit(plan, kManySteps).status() == absl::OkStatus());
    CHECK(store->Find(plan.key, 1).value() == plan);
    CHECK(store->Create(Wanted("job" + std::to_string(member), 0), {}).ok());
    CHECK(BecomeCurrent(store.get()) == absl::OkStatus());
    CHECK(changes.Last().size() == static_cast<size_t>(member) + 2);
    hangs ? etcd.Thaw(member) : etcd.Start(member);
  }
}

TEST_CASE("EtcdStore: an etcd that lost what was stored is refused",
          "[server][store][etcd]") {
  Etcd etcd;
  const auto store = Open(etcd, 5.0);
  Changes changes;
  changes.Watch(store.get());
  REQUIRE(store->Create(Wanted("run", 0), {}).ok());
  REQUIRE(BecomeCurrent(store.get()).ok());
  etcd.Wipe();
  CHECK_THAT(std::string(BecomeCurrent(store.get()).message()),
             Contains("lost what was stored"));
  CHECK_THAT(std::string(store->Get("run").status().message()),
             Contains("restart this daemon"));
  // A daemon that starts anew takes it as it is.
  CHECK(Open(etcd, 5.0)->Count().value() == 0);
}

}  // namespace
}  // namespace skrull
