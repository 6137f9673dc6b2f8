// What every store promises (job_store.h, plan_store.h), on every backend.
#include "skrull/server/store.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <limits>
#include <thread>
#include <vector>

#include "skrull/server/convert.h"
#include "skrull/tests/server/etcd/etcd_test_util.h"
#include "skrull/tests/server/store_test_util.h"

namespace skrull {
namespace {

using testing::EpochOf;
using testing::FreshEtcdUri;
using testing::HaveEtcd;
using testing::kAllRanks;
using testing::MustOpen;
using testing::PlanOf;
using testing::ReasonOf;
using testing::ReportOf;
using testing::SpecOf;
using testing::StoreDir;
using testing::Wanted;

constexpr int64_t kManySteps = 1000;

// A fresh store of each kind in turn: the test case runs once for each.
struct AnyStore {
  StoreDir dir;
  // etcd where it is installed.
  std::string kind = GENERATE(filter(
      [](const std::string& each) { return each != "etcd" || HaveEtcd(); },
      values<std::string>({"memory", "sqlite", "etcd"})));
  std::unique_ptr<Store> store = MustOpen(kind == "memory"   ? kind
                                          : kind == "sqlite" ? dir.uri()
                                                             : FreshEtcdUri());
};

std::vector<std::string> NamesOf(
    const absl::StatusOr<std::vector<JobRecord>>& records) {
  std::vector<std::string> names;
  for (const JobRecord& record : records.value()) names.push_back(record.name);
  return names;
}

std::vector<int32_t> RanksOf(
    const absl::StatusOr<std::vector<v1::StepReport>>& reports) {
  std::vector<int32_t> ranks;
  for (const v1::StepReport& report : reports.value()) {
    ranks.push_back(report.rank());
  }
  return ranks;
}

// Which of steps [0, count) have a plan at attempt 0.
std::vector<int64_t> PlannedSteps(Store& store, const std::string& job,
                                  int64_t count) {
  std::vector<int64_t> steps;
  for (int64_t step = 0; step < count; ++step) {
    if (store.Find({job, step, 0}, 1).value()) steps.push_back(step);
  }
  return steps;
}

TEST_CASE("Store: a new job is generation 1 and reads back as stored",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  const JobRecord wanted = Wanted("run", 3);
  const JobRecord created = any.store->Create(wanted, {}).value();
  const JobRecord read = any.store->Get("run").value();
  const JobRecord listed = any.store->List("", 9).value().at(0);
  for (const JobRecord& record : {created, read, listed}) {
    CHECK(record.name == "run");
    CHECK(record.generation == 1);
    CHECK(record.owner == "owner-1");
    CHECK(record.calibration.epoch() == 0);
    CHECK(record.calibration.cause() == v1::CALIBRATION_CAUSE_REGISTERED);
    CHECK(record.create_time_micros == wanted.create_time_micros);
    CHECK(record.birth >= 1);
    CHECK(record.birth == created.birth);
    CHECK(record.version == created.birth);
    CHECK(CanonicalBytes(record.spec) == CanonicalBytes(wanted.spec));
  }
  CHECK(any.store->Count().value() == 1);
}

TEST_CASE("Store: a new job may start at a higher generation",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  CHECK(any.store->Create(Wanted("run", 0, 5), {})->generation == 5);
  CHECK(any.store->Get("run")->generation == 5);
}

TEST_CASE("Store: creating a job again joins, refuses or replaces",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  Store& store = *any.store;
  const JobRecord first = store.Create(Wanted("run", 1, 3), {}).value();
  const PlanRecord plan = PlanOf("run", 3, 7);
  REQUIRE(store.Commit(plan, kManySteps).ok());
  REQUIRE(store.PutReport({"run", 3}, ReportOf(7, 0, 0), kManySteps).ok());

  struct Row {
    int variant;
    int64_t generation;
    ErrorReason reason;  // kUnspecified = OK
    bool replaces;
  };
  const Row row = GENERATE(Row{1, 0, ErrorReason::kUnspecified, false},
                           Row{1, 3, ErrorReason::kUnspecified, false},
                           Row{1, 4, ErrorReason::kUnspecified, true},
                           Row{1, 2, ErrorReason::kGenerationMismatch, false},
                           Row{2, 0, ErrorReason::kJobExists, false},
                           Row{2, 3, ErrorReason::kJobExists, false},
                           Row{2, 9, ErrorReason::kUnspecified, true},
                           Row{2, 2, ErrorReason::kGenerationMismatch, false},
                           Row{1, -1, ErrorReason::kGenerationMismatch, false});
  CAPTURE(row.variant, row.generation);
  JobRecord wanted = Wanted("run", row.variant, row.generation);
  wanted.create_time_micros = 42;
  // The limit counts jobs, and this is no new one.
  const absl::StatusOr<JobRecord> answer =
      store.Create(wanted, {.max_jobs = 1});
  CHECK(ReasonOf(answer.status()) == row.reason);
  CHECK(answer.ok() == (row.reason == ErrorReason::kUnspecified));

  const JobRecord stands = store.Get("run").value();
  CHECK(stands.generation == (row.replaces ? row.generation : 3));
  CHECK(stands.owner == (row.replaces ? wanted.owner : first.owner));
  CHECK((stands.birth == first.birth) == !row.replaces);
  CHECK(stands.version == stands.birth);
  CHECK(stands.create_time_micros ==
        (row.replaces ? 42 : first.create_time_micros));
  if (answer.ok()) {
    CHECK(answer->generation == stands.generation);
    CHECK(answer->create_time_micros == stands.create_time_micros);
  }
  CHECK(store.Find(plan.key, 3).value().has_value() == !row.replaces);
  CHECK(store.Find(plan.key, stands.generation).value().has_value() ==
        !row.replaces);
  CHECK(store.Reports(plan.key, stands.generation, kAllRanks)->empty() ==
        row.replaces);
  CHECK(store.Count().value() == 1);
}

TEST_CASE("Store: refuses new jobs at the limit and no others",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  const CreateTerms two = {.max_jobs = 2};
  REQUIRE(any.store->Create(Wanted("a", 0), two).ok());
  REQUIRE(any.store->Create(Wanted("b", 0), two).ok());
  const absl::Status refusal = any.store->Create(Wanted("c", 0), two).status();
  CHECK(ReasonOf(refusal) == ErrorReason::kLimitExceeded);
  CHECK(GetErrorDetail(refusal)->limit == 2);
  CHECK(any.store->Create(Wanted("a", 0), two).ok());
  CHECK(any.store->Create(Wanted("a", 1, 2), two).ok());
  CHECK(any.store->Count().value() == 2);
  REQUIRE(any.store->Delete({"b"}).ok());
  CHECK(any.store->Create(Wanted("c", 0), two).ok());
}

TEST_CASE("Store: an owner at its limit gets no further job",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  Store& store = *any.store;
  const auto wanted = [](const std::string& name, const std::string& owner,
                         int64_t generation = 0) {
    JobRecord record = Wanted(name, 0, generation);
    record.owner = owner;
    return record;
  };
  const CreateTerms one = {.max_owner_jobs = 1};
  REQUIRE(store.Create(wanted("a", "ann"), one).ok());
  const absl::Status refusal = store.Create(wanted("b", "ann"), one).status();
  CHECK(ReasonOf(refusal) == ErrorReason::kQuotaExceeded);
  CHECK(GetErrorDetail(refusal)->limit == 1);
  REQUIRE(store.Create(wanted("b", "bob"), one).ok());
  // Joining and replacing one's own adds none; taking another's job does.
  CHECK(store.Create(wanted("b", "ann"), one)->owner == "bob");
  CHECK(store.Create(wanted("a", "ann", 2), one).ok());
  CHECK(ReasonOf(store.Create(wanted("b", "ann", 2), one).status()) ==
        ErrorReason::kQuotaExceeded);
  CHECK(store.Get("b")->owner == "bob");
  REQUIRE(store.Delete({"a"}).ok());
  CHECK(store.Create(wanted("b", "ann", 2), one)->owner == "ann");
}

TEST_CASE("Store: the job of another owner is not to be had without the right",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  Store& store = *any.store;
  const CreateTerms own = {.any_owner = false};
  JobRecord wanted = Wanted("run", 0, 3);
  REQUIRE(store.Create(wanted, own).ok());
  CHECK(store.Create(wanted, own).ok());
  wanted.owner = "somebody";
  // Whatever is asked, the answer tells nothing of the job.
  for (int64_t generation : {0, 2, 3, 4}) {
    for (int variant : {0, 2}) {
      wanted.generation = generation;
      wanted.spec = SpecOf(variant);
      CHECK(ReasonOf(store.Create(wanted, own).status()) ==
            ErrorReason::kPermissionDenied);
    }
  }
  CHECK(store.Get("run")->owner == "owner-0");
  CHECK(store.Create(wanted, {})->owner == "somebody");
}

TEST_CASE("Store: epochs advance one by one and are remembered",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  Store& store = *any.store;
  const JobRecord job = store.Create(Wanted("run", 0, 2), {}).value();
  REQUIRE(store.Create(Wanted("other", 0), {}).ok());
  const JobRecord first = store.Advance({"run", 2}, EpochOf(1)).value();
  CHECK(CanonicalBytes(first.calibration) == CanonicalBytes(EpochOf(1)));
  CHECK(first.birth == job.birth);
  CHECK(first.version > job.version);
  CHECK(CanonicalBytes(first.spec) == CanonicalBytes(job.spec));
  // Whoever comes late, or from nowhere, gets what stands.
  v1::Calibration rival = EpochOf(1);
  rival.set_bucket_size_tokens(5);
  for (const v1::Calibration& wrong :
       {rival, EpochOf(0), EpochOf(3), EpochOf(-1),
        EpochOf(std::numeric_limits<int64_t>::min())}) {
    const JobRecord stands = store.Advance({"run", 2}, wrong).value();
    CHECK(CanonicalBytes(stands.calibration) == CanonicalBytes(EpochOf(1)));
    CHECK(stands.version == first.version);
  }
  CHECK(CanonicalBytes(store.Get("run")->calibration) ==
        CanonicalBytes(EpochOf(1)));
  CHECK(ReasonOf(store.Advance({"run", 1}, EpochOf(2)).status()) ==
        ErrorReason::kGenerationMismatch);
  CHECK(ReasonOf(store.Advance({"none", 1}, EpochOf(1)).status()) ==
        ErrorReason::kJobNotFound);
  CHECK(ReasonOf(store.Calibrations("run", 1).status()) ==
        ErrorReason::kGenerationMismatch);
  CHECK(ReasonOf(store.Calibrations("none", 1).status()) ==
        ErrorReason::kJobNotFound);

  std::vector<v1::Calibration> epochs = store.Calibrations("run", 2).value();
  REQUIRE(epochs.size() == 2);
  CHECK(CanonicalBytes(epochs[0]) == CanonicalBytes(job.calibration));
  CHECK(CanonicalBytes(epochs[1]) == CanonicalBytes(EpochOf(1)));
  for (int64_t epoch = 2; epoch <= kKeptEpochs; ++epoch) {
    REQUIRE(store.Advance({"run", 2}, EpochOf(epoch)).ok());
  }
  epochs = store.Calibrations("run", 2).value();
  REQUIRE(static_cast<int64_t>(epochs.size()) == kKeptEpochs);
  CHECK(epochs.front().epoch() == 1);
  CHECK(epochs.back().epoch() == kKeptEpochs);
  CHECK(store.Calibrations("other", 1)->size() == 1);

  // A new life begins at epoch 0.
  REQUIRE(store.Create(Wanted("run", 0, 3), {}).ok());
  CHECK(store.Calibrations("run", 3)->size() == 1);
  CHECK(store.Get("run")->calibration.epoch() == 0);
}

TEST_CASE("Store: versions rise with every change of a job",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  Store& store = *any.store;
  const int64_t a = store.Create(Wanted("a", 0), {})->version;
  CHECK(a >= 1);
  const int64_t b = store.Create(Wanted("b", 0), {})->version;
  CHECK(b > a);
  CHECK(store.Create(Wanted("a", 0), {})->version == a);  // joins
  CHECK(!store.Create(Wanted("a", 1), {}).ok());
  REQUIRE(store.Commit(PlanOf("a", 1, 1), kManySteps).ok());
  const int64_t advanced = store.Advance({"a", 1}, EpochOf(1))->version;
  CHECK(advanced > b);
  REQUIRE(store.Delete({"a"}).ok());
  // The deletion lies between.
  const int64_t again = store.Create(Wanted("a", 0), {})->birth;
  CHECK(again > advanced + 1);
  CHECK(store.Create(Wanted("b", 0, 2), {})->birth > again);
}

TEST_CASE("Store: what is for an earlier life of the job is refused",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  Store& store = *any.store;
  PlanRecord plan = PlanOf("run", 1, 4);
  plan.birth = store.Create(Wanted("run", 0), {})->birth;
  const JobLife life = {"run", 1, plan.birth};
  REQUIRE(store.Advance(life, EpochOf(1)).ok());  // no new life
  CHECK(store.Commit(plan, kManySteps).ok());
  CHECK(store.PutReport(life, ReportOf(4, 0, 0), kManySteps).ok());
  REQUIRE(store.Delete(life).ok());
  REQUIRE(store.Create(Wanted("run", 1), {}).ok());
  CHECK(ReasonOf(store.Commit(plan, kManySteps).status()) ==
        ErrorReason::kGenerationMismatch);
  CHECK(!store.Find(plan.key, 1).value());
  CHECK(ReasonOf(store.PutReport(life, ReportOf(4, 0, 0), kManySteps)) ==
        ErrorReason::kGenerationMismatch);
  CHECK(store.Reports(plan.key, 1, kAllRanks)->empty());
  CHECK(ReasonOf(store.Advance(life, EpochOf(1)).status()) ==
        ErrorReason::kGenerationMismatch);
  CHECK(ReasonOf(store.Delete(life)) == ErrorReason::kGenerationMismatch);
  CHECK(store.Get("run")->calibration.epoch() == 0);
}

TEST_CASE("Store: lists jobs in byte order, in pages", "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  for (const char* name : {"b", "a.b", "B", "a", "a-b", "10", "9", "a_b"}) {
    REQUIRE(any.store->Create(Wanted(name, 0), {}).ok());
  }
  using Names = std::vector<std::string>;
  CHECK(NamesOf(any.store->List("", 100)) ==
        Names{"10", "9", "B", "a", "a-b", "a.b", "a_b", "b"});
  CHECK(NamesOf(any.store->List("B", 3)) == Names{"a", "a-b", "a.b"});
  // A name that is gone, or never was, still says where to go on.
  CHECK(NamesOf(any.store->List("a-zzz", 2)) == Names{"a.b", "a_b"});
  CHECK(NamesOf(any.store->List("b", 3)).empty());
  CHECK(NamesOf(any.store->List("", 0)).empty());
  CHECK(NamesOf(any.store->List("", -1)).empty());
}

TEST_CASE("Store: deleting a job forgets its plans and reports",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  Store& store = *any.store;
  REQUIRE(store.Create(Wanted("run", 0), {}).ok());
  REQUIRE(store.Create(Wanted("other", 0), {}).ok());
  REQUIRE(store.Commit(PlanOf("run", 1, 5), kManySteps).ok());
  REQUIRE(store.Commit(PlanOf("other", 1, 5), kManySteps).ok());
  REQUIRE(store.PutReport({"run", 1}, ReportOf(5, 0, 0), kManySteps).ok());

  CHECK(ReasonOf(store.Delete({"run", 2})) == ErrorReason::kGenerationMismatch);
  CHECK(store.Find({"run", 5, 0}, 1).value().has_value());
  CHECK(ReasonOf(store.Delete({"none"})) == ErrorReason::kJobNotFound);

  REQUIRE(store.Delete({"run", GENERATE(0, 1)}).ok());
  CHECK(ReasonOf(store.Get("run").status()) == ErrorReason::kJobNotFound);
  CHECK(ReasonOf(store.Delete({"run"})) == ErrorReason::kJobNotFound);
  CHECK(store.Count().value() == 1);

  // Nothing of the old job shows through a new one of the same name.
  REQUIRE(store.Create(Wanted("run", 0), {}).ok());
  CHECK(!store.Find({"run", 5, 0}, 1).value());
  CHECK(store.Reports({"run", 5, 0}, 1, kAllRanks)->empty());
  CHECK(store.Find({"other", 5, 0}, 1).value() == PlanOf("other", 1, 5));
}

TEST_CASE("Store: the first commit of a key stands", "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  REQUIRE(any.store->Create(Wanted("run", 0, 2), {}).ok());
  const PlanRecord first = PlanOf("run", 2, 4, 1);
  CHECK(any.store->Commit(first, kManySteps).value() == first);
  PlanRecord second = first;
  second.request_digest = "other";
  second.plan = "other bytes";
  CHECK(any.store->Commit(second, kManySteps).value() == first);
  CHECK(any.store->Find(first.key, 2).value() == first);
  // Other attempts, steps and generations are other keys.
  CHECK(!any.store->Find({"run", 4, 0}, 2).value());
  CHECK(!any.store->Find({"run", 3, 1}, 2).value());
  CHECK(!any.store->Find(first.key, 1).value());
  CHECK(!any.store->Find(first.key, 0).value());
  CHECK(!any.store->Find({"none", 4, 1}, 2).value());
}

TEST_CASE("Store: keys and bytes at the ends of their ranges survive",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  const std::string name(128, 'z');
  REQUIRE(any.store->Create(Wanted(name, 0), {}).ok());
  PlanRecord record = PlanOf(name, 1, std::numeric_limits<int64_t>::max(),
                             std::numeric_limits<int32_t>::max());
  record.plan = GENERATE(std::string(), std::string(1, '\0'),
                         std::string(3 << 20, '\xff'));
  record.request_digest = "";
  REQUIRE(any.store->Commit(record, kManySteps).ok());
  CHECK((any.store->Find(record.key, 1).value() == record));
}

TEST_CASE("Store: refuses writes for jobs that are gone or replaced",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  Store& store = *any.store;
  REQUIRE(store.Create(Wanted("run", 0, 2), {}).ok());
  const auto commit = [&](const std::string& job, int64_t generation) {
    return ReasonOf(
        store.Commit(PlanOf(job, generation, 1), kManySteps).status());
  };
  const auto report = [&](const std::string& job, int64_t generation) {
    return ReasonOf(
        store.PutReport({job, generation}, ReportOf(1, 0, 0), kManySteps));
  };
  CHECK(commit("none", 1) == ErrorReason::kJobNotFound);
  CHECK(report("none", 1) == ErrorReason::kJobNotFound);
  for (int64_t generation : {0, 1, 3}) {
    CAPTURE(generation);
    CHECK(commit("run", generation) == ErrorReason::kGenerationMismatch);
    CHECK(report("run", generation) == ErrorReason::kGenerationMismatch);
  }
  CHECK(!store.Find({"run", 1, 0}, 2).value());
  CHECK(store.Reports({"run", 1, 0}, 2, kAllRanks)->empty());
  CHECK(commit("run", 2) == ErrorReason::kUnspecified);
}

TEST_CASE("Store: keeps the steps that were committed last",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  Store& store = *any.store;
  REQUIRE(store.Create(Wanted("run", 0), {}).ok());
  REQUIRE(store.Create(Wanted("other", 0), {}).ok());
  REQUIRE(store.Commit(PlanOf("other", 1, 2), 3).ok());
  const auto commit = [&](int64_t step, int32_t attempt = 0) {
    REQUIRE(store.Commit(PlanOf("run", 1, step, attempt), 3).ok());
  };
  const auto planned = [&] { return PlannedSteps(store, "run", 100); };
  using Steps = std::vector<int64_t>;
  commit(50);
  commit(2);  // order of commit counts, not of steps
  commit(99);
  CHECK(planned() == Steps{2, 50, 99});
  commit(1);
  CHECK(planned() == Steps{1, 2, 99});
  commit(2, 1);  // a new attempt makes the step the last one
  commit(3);
  CHECK(planned() == Steps{1, 2, 3});
  commit(2);  // repeats what stands, and changes nothing
  commit(4);
  CHECK(planned() == Steps{2, 3, 4});
  commit(5);
  CHECK(planned() == Steps{3, 4, 5});
  CHECK(!store.Find({"run", 2, 1}, 1).value());  // with all its attempts
  commit(2);                                     // anew
  CHECK(planned() == Steps{2, 4, 5});
  CHECK(PlannedSteps(store, "other", 100) == Steps{2});
  // Fewer are kept from the next commit on.
  REQUIRE(store.Commit(PlanOf("run", 1, 6), 1).ok());
  CHECK(planned() == Steps{6});
  REQUIRE(store.Commit(PlanOf("run", 1, 7), 0).ok());  // as 1
  CHECK(planned() == Steps{7});
}

TEST_CASE("Store: tells the steps that were committed last",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  Store& store = *any.store;
  REQUIRE(store.Create(Wanted("run", 0), {}).ok());
  CHECK(store.LatestSteps("run", 1, 9)->empty());
  for (const auto& [step, attempt] : std::vector<std::pair<int64_t, int32_t>>{
           {5, 0}, {2, 0}, {9, 1}, {2, 3}, {2, 1}}) {
    REQUIRE(store.Commit(PlanOf("run", 1, step, attempt), 3).ok());
  }
  REQUIRE(store.PutReport({"run", 1}, ReportOf(30, 0, 0), 3).ok());
  const std::vector<PlanKey> all = {
      {"run", 2, 3}, {"run", 9, 1}, {"run", 5, 0}};
  CHECK(store.LatestSteps("run", 1, 9).value() == all);
  CHECK(store.LatestSteps("run", 1, 2).value() ==
        std::vector<PlanKey>(all.begin(), all.begin() + 2));
  CHECK(store.LatestSteps("run", 1, 0)->empty());
  CHECK(store.LatestSteps("run", 1, -1)->empty());
  CHECK(store.LatestSteps("run", 2, 9)->empty());
  CHECK(store.LatestSteps("none", 1, 9)->empty());
}

TEST_CASE("Store: one with one owner is always current", "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  if (any.kind == "etcd") return;  // has many: etcd_store_test.cc
  int told = 0;
  absl::Status current = absl::UnknownError("not called");
  any.store->Watch([&](const JobChange&) { ++told; });
  REQUIRE(any.store->Create(Wanted("run", 0), {}).ok());
  any.store->WhenCurrent([&](const absl::Status& status) { current = status; });
  CHECK(current.ok());
  CHECK(told == 0);
}

TEST_CASE("Store: reports are listed by rank and replaced by the same rank",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  Store& store = *any.store;
  REQUIRE(store.Create(Wanted("run", 0), {}).ok());
  for (int32_t rank : {10, 2, 0, 2}) {
    const int64_t peak = rank * 100;
    REQUIRE(store.PutReport({"run", 1}, ReportOf(5, 0, rank, peak), kManySteps)
                .ok());
  }
  REQUIRE(store.PutReport({"run", 1}, ReportOf(5, 1, 3), kManySteps).ok());
  REQUIRE(store.PutReport({"run", 1}, ReportOf(5, 0, 2, 7), kManySteps).ok());
  const std::vector<v1::StepReport> reports =
      store.Reports({"run", 5, 0}, 1, kAllRanks).value();
  CHECK(RanksOf(reports) == std::vector<int32_t>{0, 2, 10});
  CHECK(reports[1].peak_bytes() == 7);
  CHECK(reports[2].peak_bytes() == 1000);
  CHECK(reports[2].outcome() == v1::STEP_OUTCOME_OK);
  CHECK(RanksOf(store.Reports({"run", 5, 0}, 1, 2)) ==
        std::vector<int32_t>{0, 2});
  CHECK(store.Reports({"run", 5, 0}, 1, 0)->empty());
  CHECK(store.Reports({"run", 5, 0}, 1, -1)->empty());
  CHECK(RanksOf(store.Reports({"run", 5, 1}, 1, kAllRanks)) ==
        std::vector<int32_t>{3});
  CHECK(store.Reports({"run", 5, 2}, 1, kAllRanks)->empty());
  CHECK(store.Reports({"run", 5, 0}, 2, kAllRanks)->empty());
  CHECK(store.Reports({"none", 5, 0}, 1, kAllRanks)->empty());
}

TEST_CASE("Store: reports go with their step, or count for themselves",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  Store& store = *any.store;
  REQUIRE(store.Create(Wanted("run", 0), {}).ok());
  const auto commit = [&](int64_t step) {
    REQUIRE(store.Commit(PlanOf("run", 1, step), 2).ok());
  };
  const auto report = [&](int64_t step) {
    REQUIRE(store.PutReport({"run", 1}, ReportOf(step, 0, 0), 2).ok());
  };
  const auto reported = [&](int64_t step) {
    return !store.Reports({"run", step, 0}, 1, kAllRanks)->empty();
  };
  commit(0);
  report(0);
  commit(1);
  // Reports of unplanned steps push out each other, and no plan.
  for (int64_t step : {10, 11, 12}) report(step);
  CHECK(PlannedSteps(store, "run", 20) == std::vector<int64_t>{0, 1});
  CHECK(reported(0));
  CHECK(!reported(10));
  CHECK(reported(11));
  CHECK(reported(12));
  report(11);  // 12 is now the oldest of them
  report(13);
  CHECK(reported(11));
  CHECK(!reported(12));
  // Planning a reported step moves it, with its reports, among the planned.
  commit(11);
  CHECK(PlannedSteps(store, "run", 20) == std::vector<int64_t>{1, 11});
  CHECK(!reported(0));
  report(14);
  CHECK(reported(11));
  CHECK(reported(13));
  CHECK(reported(14));
  // A report does not make a planned step newer.
  report(1);
  commit(2);
  CHECK(PlannedSteps(store, "run", 20) == std::vector<int64_t>{2, 11});
  CHECK(!reported(1));
}

TEST_CASE("Store: of concurrent commits of a key all callers get one",
          "[server][store]") {
  AnyStore any;
  INFO(any.kind);
  Store& store = *any.store;
  REQUIRE(store.Create(Wanted("run", 0), {}).ok());
  constexpr int kThreads = 4;
  constexpr int64_t kSteps = 25;
  std::vector<std::vector<std::string>> seen(kThreads);
  std::atomic<int> failures = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int64_t step = 0; step < kSteps; ++step) {
          PlanRecord record = PlanOf("run", 1, step);
          record.plan = "plan of thread " + std::to_string(t);
          const auto stands = store.Commit(record, kManySteps);
          const auto report =
              store.PutReport({"run", 1}, ReportOf(step, 0, t), kManySteps);
          if (!stands.ok() || !report.ok()) ++failures;
          seen[static_cast<size_t>(t)].push_back(stands.ok() ? stands->plan
                                                             : "");
        }
      });
    }
  }
  CHECK(failures == 0);
  for (const auto& plans : seen) CHECK(plans == seen[0]);
  for (int64_t step = 0; step < kSteps; ++step) {
    CHECK(store.Find({"run", step, 0}, 1).value()->plan ==
          seen[0][static_cast<size_t>(step)]);
    CHECK(RanksOf(store.Reports({"run", step, 0}, 1, kAllRanks)) ==
          std::vector<int32_t>{0, 1, 2, 3});
  }
}

TEST_CASE("OpenStore: refuses what is no store", "[server][store]") {
  const std::string uri =
      GENERATE(std::string(""), std::string("memory:"), std::string("Memory"),
               std::string("sqlite"), std::string("sqlite:"),
               std::string("/tmp/x.db"), std::string("sqlite:/tmp/a\0b", 14));
  CAPTURE(uri);
  const absl::Status status = OpenStore(uri).status();
  CHECK(ReasonOf(status) == ErrorReason::kFieldInvalid);
  CHECK(GetErrorDetail(status)->field == "store");
}

}  // namespace
}  // namespace skrull
