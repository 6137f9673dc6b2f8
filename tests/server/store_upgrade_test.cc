// Files of other versions of the SQLite store.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "skrull/server/convert.h"
#include "skrull/server/sqlite_schema.h"
#include "skrull/server/store_rules.h"
#include "skrull/tests/server/sqlite_test_util.h"
#include "skrull/tests/server/store_test_util.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;
using testing::CheckFilled;
using testing::EpochOf;
using testing::Fill;
using testing::kAllRanks;
using testing::MustOpen;
using testing::OpenRefusal;
using testing::PlanOf;
using testing::ReadAll;
using testing::ReportOf;
using testing::RunSql;
using testing::StoreDir;
using testing::Wanted;

// What store_v1.sql was made of: jobs "run" and "idle", and some plans and
// reports of the first. There was a job of id 1, which is gone.
void CheckVersion1(Store& store) {
  const std::vector<JobRecord> jobs = store.List("", 9).value();
  REQUIRE(jobs.size() == 2);
  for (const JobRecord& job : jobs) {
    CAPTURE(job.name);
    const int variant = job.name == "run" ? 1 : 2;
    CHECK(job.generation == 3 - variant);
    CHECK(job.owner.empty());
    CHECK(job.create_time_micros == 1'700'000'000'000'000 + variant);
    CHECK(CanonicalBytes(job.spec) == CanonicalBytes(testing::SpecOf(variant)));
    CHECK(job.birth == variant + 1);
    CHECK(job.version == job.birth);
    CHECK(CanonicalBytes(job.calibration) ==
          CanonicalBytes(RegisteredCalibration()));
    CHECK(store.Calibrations(job.name, job.generation)->size() == 1);
  }
  for (int64_t step = 0; step < 3; ++step) {
    const PlanRecord plan = PlanOf("run", 2, step, 0, 40);
    CHECK(store.Find(plan.key, 2).value() == plan);
    const auto reports = store.Reports(plan.key, 2, kAllRanks).value();
    REQUIRE(reports.size() == 1);
    CHECK(CanonicalBytes(reports[0]) ==
          CanonicalBytes(ReportOf(step, 0, 1, 100 + step)));
  }
  CHECK(store.Find({"run", 1, 1}, 2).value() == PlanOf("run", 2, 1, 1, 40));
  CHECK(store.Reports({"run", 7, 0}, 2, kAllRanks)->size() == 1);
}

TEST_CASE("SqliteStore: a file of a newer version is refused and left alone",
          "[server][store][sqlite]") {
  StoreDir dir;
  Fill(*MustOpen(dir.uri()));
  RunSql(dir.file(), "PRAGMA user_version = 3");
  CHECK(kStoreSchemaVersion == 2);
  const std::string before = ReadAll(dir.file());
  CHECK_THAT(OpenRefusal(dir.uri()),
             Contains(dir.file()) && Contains("newer version (schema 3"));
  CHECK(ReadAll(dir.file()) == before);
  RunSql(dir.file(), "PRAGMA user_version = 2");
  CheckFilled(*MustOpen(dir.uri()));
}

TEST_CASE("SqliteStore: a file of version 1 is brought up to this one",
          "[server][store][sqlite]") {
  StoreDir dir;
  RunSql(dir.file(), ReadAll(SKRULL_STORE_V1));
  CheckVersion1(*MustOpen(dir.uri()));
  const std::unique_ptr<Store> store = MustOpen(dir.uri());
  CheckVersion1(*store);
  // Its jobs and steps go on where they were, and versions after theirs.
  CHECK(store->LatestSteps("run", 2, 2).value() ==
        std::vector<PlanKey>{{"run", 1, 1}, {"run", 2, 0}});
  CHECK(store->Advance({"run", 2}, EpochOf(1))->version == 4);
  CHECK(store->Create(Wanted("idle", 2), {})->birth == 3);
  CHECK(store->Create(Wanted("new", 0), {})->birth == 5);
  REQUIRE(store->Commit(PlanOf("run", 2, 3), 2).ok());
  CHECK(!store->Find({"run", 2, 0}, 2).value());
  CHECK(store->Find({"run", 1, 1}, 2).value());
}

TEST_CASE("SqliteStore: an upgrade that fails leaves version 1 as it was",
          "[server][store][sqlite]") {
  StoreDir dir;
  RunSql(dir.file(), ReadAll(SKRULL_STORE_V1));
  // The last table that the upgrade makes is in the way.
  RunSql(dir.file(), "CREATE TABLE last_version(x)");
  CHECK_THAT(OpenRefusal(dir.uri()), Contains("last_version already exists"));
  RunSql(dir.file(), "DROP TABLE last_version");
  CheckVersion1(*MustOpen(dir.uri()));
}

TEST_CASE("SqliteStore: rows that do not agree with others are refused",
          "[server][store][sqlite]") {
  StoreDir dir;
  Fill(*MustOpen(dir.uri()));
  MustOpen(dir.uri())->Advance({"run", 2}, EpochOf(1)).value();
  RunSql(dir.file(), GENERATE("DELETE FROM epochs WHERE epoch = 1",
                              "UPDATE jobs SET calibration_epoch = 0",
                              "UPDATE jobs SET calibration_epoch = 2",
                              "UPDATE jobs SET planned_steps = 3",
                              "UPDATE jobs SET next_order = 4",
                              "UPDATE steps SET planned = 0 WHERE step = 3",
                              "DELETE FROM plans WHERE step = 3",
                              "PRAGMA foreign_keys = OFF; DELETE FROM jobs",
                              "DELETE FROM last_version",
                              "UPDATE last_version SET version = 1"));
  CHECK_THAT(OpenRefusal(dir.uri()), Contains("do not agree with others"));
}

TEST_CASE("SqliteStore: tables of another shape are refused",
          "[server][store][sqlite]") {
  StoreDir dir;
  Fill(*MustOpen(dir.uri()));
  RunSql(dir.file(),
         GENERATE("CREATE TABLE more(x)", "ALTER TABLE plans ADD COLUMN more",
                  "DROP INDEX jobs_by_owner"));
  CHECK_THAT(OpenRefusal(dir.uri()), Contains("other tables than ours"));
}

TEST_CASE("SqliteStore: what a tool collects about the tables does no harm",
          "[server][store][sqlite]") {
  StoreDir dir;
  Fill(*MustOpen(dir.uri()));
  RunSql(dir.file(), "ANALYZE; VACUUM");
  CheckFilled(*MustOpen(dir.uri()));
}

}  // namespace
}  // namespace skrull
