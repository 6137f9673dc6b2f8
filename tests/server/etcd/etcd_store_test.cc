// What the etcd store promises beyond the other stores: one truth for several
// daemons. store_test.cc has what it shares with them.
#include "skrull/server/etcd/etcd_store.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "skrull/server/etcd/etcd_plans.h"
#include "skrull/server/etcd/etcd_txn.h"
#include "skrull/server/etcd/etcd_uri.h"
#include "skrull/server/etcd/etcd_value.h"
#include "skrull/server/store_rules.h"
#include "skrull/tests/server/etcd/etcd_test_util.h"
#include "skrull/tests/server/store_test_util.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;
using testing::BecomeCurrent;
using testing::Changes;
using testing::CountKeys;
using testing::EpochOf;
using testing::FreshEtcdUri;
using testing::MustOpen;
using testing::OpenRefusal;
using testing::PlanOf;
using testing::ReasonOf;
using testing::ReportOf;
using testing::Wanted;

constexpr int64_t kManySteps = 1000;
using Names = std::vector<std::string>;

// Two daemons' views of one store.
struct Pair {
  std::string uri = FreshEtcdUri();
  std::unique_ptr<Store> a = MustOpen(uri);
  std::unique_ptr<Store> b = MustOpen(uri);
};

TEST_CASE("EtcdStore: what one daemon stores the other reads",
          "[server][store][etcd]") {
  Pair pair;
  const JobRecord created = pair.a->Create(Wanted("run", 1), {}).value();
  const JobRecord read = pair.b->Get("run").value();
  CHECK(read.birth == created.birth);
  CHECK(read.version == created.version);
  CHECK(created.birth > 0);
  const PlanRecord plan = PlanOf("run", 1, 7);
  REQUIRE(pair.a->Commit(plan, kManySteps).value() == plan);
  CHECK(pair.b->Find(plan.key, 1).value() == plan);
  PlanRecord other = plan;
  other.plan = "other";
  CHECK(pair.b->Commit(other, kManySteps).value() == plan);
  REQUIRE(pair.b->PutReport({"run", 1}, ReportOf(7, 0, 3), kManySteps).ok());
  CHECK(pair.a->Reports(plan.key, 1, 10)->size() == 1);
  REQUIRE(pair.b->Advance({"run", 1}, EpochOf(1)).ok());
  CHECK(pair.a->Get("run")->calibration.epoch() == 1);
  CHECK(pair.a->Calibrations("run", 1)->size() == 2);
}

TEST_CASE("EtcdStore: what is for a life that has ended is refused",
          "[server][store][etcd]") {
  Pair pair;
  const JobRecord old = pair.a->Create(Wanted("run", 1), {}).value();
  PlanRecord plan = PlanOf("run", 1, 7);
  plan.birth = old.birth;
  // B has seen the old life, and A begins a new one of the same generation.
  REQUIRE(!pair.b->Find(plan.key, 1).value());
  REQUIRE(pair.a->Delete({"run", 1}).ok());
  REQUIRE(pair.b->Commit(plan, kManySteps).status().code() ==
          absl::StatusCode::kNotFound);
  const JobRecord now = pair.a->Create(Wanted("run", 2), {}).value();
  CHECK(now.birth > old.birth);
  CHECK(ReasonOf(pair.b->Commit(plan, kManySteps).status()) ==
        ErrorReason::kGenerationMismatch);
  CHECK(!pair.b->Find(plan.key, 1).value());
  const JobLife life = {"run", 1, old.birth};
  for (int round = 0; round < 2; ++round) {
    CHECK(ReasonOf(pair.b->PutReport(life, ReportOf(7, 0, 0), kManySteps)) ==
          ErrorReason::kGenerationMismatch);
    CHECK(ReasonOf(pair.b->Advance(life, EpochOf(1)).status()) ==
          ErrorReason::kGenerationMismatch);
    CHECK(pair.a->Reports(plan.key, 1, 9)->empty());
    CHECK(pair.a->Get("run")->calibration.epoch() == 0);
    // B now remembers the new life, and the step has a plan there.
    plan.birth = now.birth;
    REQUIRE(pair.b->Commit(plan, kManySteps).ok());
  }
  // One of any life reaches the one that stands.
  CHECK(pair.b->PutReport({"run", 1}, ReportOf(7, 0, 0), kManySteps).ok());
  CHECK(pair.a->Reports(plan.key, 1, 9)->size() == 1);
}

TEST_CASE("EtcdStore: of racing daemons one commits, and all get that plan",
          "[server][store][etcd]") {
  Pair pair;
  REQUIRE(pair.a->Create(Wanted("run", 0), {}).ok());
  constexpr int kThreads = 6;
  constexpr int64_t kSteps = 15;
  std::vector<std::vector<std::string>> seen(kThreads);
  std::atomic<int> failures = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        Store& store = t % 2 == 0 ? *pair.a : *pair.b;
        for (int64_t step = 0; step < kSteps; ++step) {
          PlanRecord record = PlanOf("run", 1, step);
          record.plan = "plan of thread " + std::to_string(t);
          // Few are kept, so that commits and their pruning race as well.
          const auto stands = store.Commit(record, 4);
          const auto reported =
              store.PutReport({"run", 1}, ReportOf(step, 0, t), 4);
          if (!stands.ok() || !reported.ok()) ++failures;
          seen[static_cast<size_t>(t)].push_back(stands.ok() ? stands->plan
                                                             : "");
        }
      });
    }
  }
  CHECK(failures == 0);
  // Threads move on at their own pace: a step that one thread comes to late may
  // have been forgotten, and is then committed anew. The last one cannot.
  for (const auto& plans : seen) CHECK(plans.back() == seen[0].back());
  CHECK(pair.b->Find({"run", kSteps - 1, 0}, 1).value()->plan ==
        seen[0].back());
  CHECK(pair.a->LatestSteps("run", 1, 100)->size() == 4);
}

TEST_CASE("EtcdStore: racing daemons exceed no limit of jobs",
          "[server][store][etcd]") {
  Pair pair;
  constexpr int kThreads = 4;
  std::atomic<int> created = 0;
  std::atomic<int> refused = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        Store& store = t % 2 == 0 ? *pair.a : *pair.b;
        for (int i = 0; i < 4; ++i) {
          const std::string name =
              "job-" + std::to_string(t) + "-" + std::to_string(i);
          const auto job = store.Create(Wanted(name, 0), {.max_jobs = 10});
          if (job.ok()) ++created;
          if (ReasonOf(job.status()) == ErrorReason::kLimitExceeded) ++refused;
        }
      });
    }
  }
  CHECK(created == 10);
  CHECK(refused == 6);
  CHECK(pair.a->Count().value() == 10);
  CHECK(pair.b->List("", 100)->size() == 10);
}

TEST_CASE("EtcdStore: an epoch is advanced to once", "[server][store][etcd]") {
  Pair pair;
  REQUIRE(pair.a->Create(Wanted("run", 0), {}).ok());
  std::atomic<int> won = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        Store& store = t % 2 == 0 ? *pair.a : *pair.b;
        for (int64_t epoch = 1; epoch <= 10; ++epoch) {
          v1::Calibration next = EpochOf(epoch);
          next.set_text("of thread " + std::to_string(t));
          const auto stands = store.Advance({"run", 1}, next);
          if (stands.ok() && stands->calibration.text() == next.text() &&
              stands->calibration.epoch() == epoch) {
            ++won;
          }
        }
      });
    }
  }
  CHECK(won == 10);
  const auto epochs = pair.b->Calibrations("run", 1).value();
  REQUIRE(epochs.size() == 11);
  for (size_t i = 0; i < epochs.size(); ++i) {
    CHECK(epochs[i].epoch() == static_cast<int64_t>(i));
  }
}

TEST_CASE("EtcdStore: a daemon is told what others change, in order",
          "[server][store][etcd]") {
  Pair pair;
  REQUIRE(pair.a->Create(Wanted("before", 0), {}).ok());
  Changes changes;
  changes.Watch(pair.b.get());
  REQUIRE(BecomeCurrent(pair.b.get()).ok());
  CHECK(changes.Last() == Names{"before 1"});

  const JobRecord first = pair.a->Create(Wanted("run", 0), {}).value();
  REQUIRE(BecomeCurrent(pair.b.get()).ok());
  CHECK(changes.Last() == Names{"before 1", "run 1"});
  REQUIRE(pair.a->Advance({"run", 1}, EpochOf(1)).ok());
  REQUIRE(BecomeCurrent(pair.b.get()).ok());
  REQUIRE(pair.a->Create(Wanted("run", 1, 5), {}).ok());
  REQUIRE(pair.a->Delete({"before"}).ok());
  // Its own changes come the same way.
  REQUIRE(pair.b->Create(Wanted("own", 0), {}).ok());
  REQUIRE(BecomeCurrent(pair.b.get()).ok());
  CHECK(changes.Last() == Names{"before gone", "own 1", "run 5"});

  const std::vector<JobChange> all = changes.All();
  REQUIRE(all.size() == 6);
  for (size_t i = 1; i < all.size(); ++i) {
    CHECK(all[i].version > all[i - 1].version);
  }
  CHECK(all[1].record->birth == first.birth);
  CHECK(all[2].record->birth == first.birth);  // another epoch, the same life
  CHECK(all[2].record->calibration.epoch() == 1);
  CHECK(all[3].record->birth == all[3].version);
  CHECK(all[3].record->calibration.epoch() == 0);
}

TEST_CASE("EtcdStore: plans around and above a value's size survive",
          "[server][store][etcd]") {
  Pair pair;
  REQUIRE(pair.a->Create(Wanted("run", 0), {}).ok());
  const auto bytes = GENERATE(
      size_t{0}, size_t{kMaxEtcdValueBytes / 2},
      size_t{kMaxEtcdValueBytes / 2 + 1}, size_t{kMaxEtcdValueBytes},
      size_t{kMaxEtcdValueBytes + 1}, size_t{20 * kMaxEtcdValueBytes + 17});
  CAPTURE(bytes);
  PlanRecord record = PlanOf("run", 1, 3);
  record.plan.resize(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    record.plan[i] = static_cast<char>((i * 2654435761U) >> 13);
  }
  REQUIRE((pair.a->Commit(record, kManySteps).value() == record));
  CHECK((pair.b->Find(record.key, 1).value() == record));
  PlanRecord other = record;
  other.plan += "x";
  CHECK((pair.b->Commit(other, kManySteps).value() == record));
  // What the loser wrote goes with its step.
  REQUIRE(pair.b->Commit(PlanOf("run", 1, 4), 1).ok());
  CHECK(!pair.a->Find(record.key, 1).value());
  CHECK(CountKeys(pair.uri, "data/") == 3);  // plan, place and order of step 4
}

TEST_CASE("EtcdStore: what is too large is refused by name",
          "[server][store][etcd]") {
  Pair pair;
  REQUIRE(pair.a->Create(Wanted("run", 0), {}).ok());
  PlanRecord record = PlanOf("run", 1, 3);
  constexpr int64_t kMost = EtcdPlans::kMaxChunks * kMaxEtcdValueBytes;
  record.plan.resize(static_cast<size_t>(kMost + 1));
  const absl::Status plan = pair.a->Commit(record, kManySteps).status();
  CHECK(ReasonOf(plan) == ErrorReason::kLimitExceeded);
  CHECK(GetErrorDetail(plan)->limit == kMost);
  CHECK(CountKeys(pair.uri, "data/") == 0);

  JobRecord wanted = Wanted("large", 0);
  (*wanted.spec.mutable_labels())["x"] =
      std::string(static_cast<size_t>(kMaxEtcdValueBytes), 'x');
  const absl::Status job = pair.a->Create(wanted, {}).status();
  CHECK(ReasonOf(job) == ErrorReason::kLimitExceeded);
  CHECK(pair.a->Count().value() == 1);
}

TEST_CASE("EtcdStore: nothing is left of jobs that ended",
          "[server][store][etcd]") {
  Pair pair;
  const int64_t empty = CountKeys(pair.uri);
  for (int64_t generation : {1, 2}) {
    REQUIRE(pair.a->Create(Wanted("run", 0, generation), {}).ok());
    for (int64_t step = 0; step < 4; ++step) {
      REQUIRE(pair.a->Commit(PlanOf("run", generation, step), 3).ok());
      REQUIRE(
          pair.b->PutReport({"run", generation}, ReportOf(step, 0, 0), 3).ok());
      REQUIRE(
          pair.b->PutReport({"run", generation}, ReportOf(step + 50, 0, 0), 3)
              .ok());
    }
    REQUIRE(pair.a->Advance({"run", generation}, EpochOf(1)).ok());
  }
  REQUIRE(pair.b->Delete({"run"}).ok());
  CHECK(CountKeys(pair.uri) == empty + 1);  // when jobs changed last
}

TEST_CASE("EtcdStore: more is left of a job than one request deletes",
          "[server][store][etcd]") {
  Pair pair;
  const EtcdLocation location = ParseEtcdUri(pair.uri).value();
  EtcdClient client({.endpoints = location.endpoints,
                     .credentials = grpc::InsecureChannelCredentials()});
  const EtcdKeys keys(location.prefix);
  const JobRecord job = pair.a->Create(Wanted("run", 0), {}).value();
  const EtcdLifeKeys life = keys.Life("run", job.birth);
  constexpr int kKeys = 5000;
  for (int i = 0; i < kKeys; i += 100) {
    EtcdTxn txn;
    for (int j = i; j < i + 100; ++j) txn.Put(life.Report(1, 0, j), "");
    REQUIRE(client.Txn(txn.request()).ok());
  }
  CHECK(CountKeys(pair.uri, "data/") == kKeys);
  REQUIRE(pair.a->Delete({"run"}).ok());
  CHECK(CountKeys(pair.uri, "data/") == 0);
  CHECK(CountKeys(pair.uri, "trash/") == 0);
}

TEST_CASE("EtcdStore: a store of a newer version is refused",
          "[server][store][etcd]") {
  const std::string uri = FreshEtcdUri();
  MustOpen(uri);
  const EtcdLocation location = ParseEtcdUri(uri).value();
  EtcdClient client({.endpoints = location.endpoints,
                     .credentials = grpc::InsecureChannelCredentials()});
  const auto put = [&](const std::string& version) {
    EtcdTxn txn;
    txn.Put(EtcdKeys(location.prefix).Version(), version);
    REQUIRE(client.Txn(txn.request()).ok());
  };
  put("2");
  CHECK(kEtcdLayoutVersion == 1);
  CHECK_THAT(OpenRefusal(uri), Contains("newer version (layout 2"));
  put("x");
  CHECK_THAT(OpenRefusal(uri), Contains("another program"));
  put("1");
  CHECK(MustOpen(uri)->Count().value() == 0);
}

TEST_CASE("EtcdStore: an etcd that is not there is refused by name",
          "[server][store][etcd]") {
  const std::string address =
      "127.0.0.1:" + std::to_string(testing::FreePort());
  StoreOptions options;
  options.etcd_timeout_seconds = 0.5;
  const absl::Status status =
      OpenStore("etcd://" + address + "/p", options).status();
  CHECK(ReasonOf(status) == ErrorReason::kStoreFailed);
  CHECK_THAT(std::string(status.message()),
             Contains(address) && Contains("not reached within 500 ms"));
  options.etcd_ca_file = "/none/ca.pem";
  CHECK_THAT(
      std::string(
          OpenStore("etcd://" + address + "/p", options).status().message()),
      Contains("/none/ca.pem"));
}

}  // namespace
}  // namespace skrull
