#include "skrull/server/sqlite_schema.h"

#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/server/sqlite_row_sum.h"
#include "skrull/server/store_rules.h"

namespace skrull {
namespace {

// How long a statement waits for a tool that has the file locked. No daemon
// has.
constexpr int kBusyMilliseconds = 2000;

// Entry i brings the tables from version i to i + 1; version 0 is an empty
// file. What is released is never changed: files were made by it.
//
// Steps of a job are of two kinds, planned (1) and only reported (0); each has
// its own order and count. Deleting a job or a step deletes what hangs on it.
constexpr const char* kUpgrades[] = {
    R"sql(
CREATE TABLE jobs(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  spec BLOB NOT NULL,
  generation INTEGER NOT NULL,
  calibration_epoch INTEGER NOT NULL,
  create_time_micros INTEGER NOT NULL,
  next_order INTEGER NOT NULL DEFAULT 1,
  planned_steps INTEGER NOT NULL DEFAULT 0,
  reported_steps INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE steps(
  job_id INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
  step INTEGER NOT NULL,
  planned INTEGER NOT NULL,
  last_order INTEGER NOT NULL,
  PRIMARY KEY(job_id, step)
) WITHOUT ROWID;
CREATE UNIQUE INDEX steps_by_order ON steps(job_id, planned, last_order);
CREATE TABLE plans(
  job_id INTEGER NOT NULL,
  step INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  request_digest TEXT NOT NULL,
  plan BLOB NOT NULL,
  PRIMARY KEY(job_id, step, attempt),
  FOREIGN KEY(job_id, step) REFERENCES steps(job_id, step) ON DELETE CASCADE
);
CREATE TABLE reports(
  job_id INTEGER NOT NULL,
  step INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  report BLOB NOT NULL,
  PRIMARY KEY(job_id, step, attempt, rank),
  FOREIGN KEY(job_id, step) REFERENCES steps(job_id, step) ON DELETE CASCADE
) WITHOUT ROWID;
)sql",
    // Owners, lives and epochs, and sums over rows (sqlite_row_sum.h) that
    // SqliteStore writes and checks. calibration_epoch, always 0 before, now
    // names the row of `epochs` that is in force. X'1001' is
    // Calibration{cause: CALIBRATION_CAUSE_REGISTERED}. Ids rise with births.
    R"sql(
ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN birth INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN sum TEXT NOT NULL DEFAULT '';
ALTER TABLE plans ADD COLUMN sum TEXT NOT NULL DEFAULT '';
ALTER TABLE reports ADD COLUMN sum TEXT NOT NULL DEFAULT '';
CREATE INDEX jobs_by_owner ON jobs(owner);
CREATE TABLE epochs(
  job_id INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
  epoch INTEGER NOT NULL,
  version INTEGER NOT NULL,
  calibration BLOB NOT NULL,
  sum TEXT NOT NULL,
  PRIMARY KEY(job_id, epoch)
) WITHOUT ROWID;
CREATE TABLE last_version(
  id INTEGER PRIMARY KEY CHECK(id = 0),
  version INTEGER NOT NULL
);
UPDATE jobs SET birth = id;
UPDATE jobs SET sum =
  row_sum(name, spec, generation, owner, create_time_micros, birth);
UPDATE plans SET sum = row_sum(job_id, step, attempt, request_digest, plan);
UPDATE reports SET sum = row_sum(job_id, step, attempt, rank, report);
INSERT INTO epochs SELECT id, calibration_epoch, birth, X'1001',
  row_sum(id, calibration_epoch, birth, X'1001') FROM jobs;
INSERT INTO last_version SELECT 0, coalesce(max(seq), 0) FROM sqlite_sequence
  WHERE name = 'jobs';
)sql"};
static_assert(std::size(kUpgrades) == kStoreSchemaVersion);

// What the tables of a database are.
constexpr char kTables[] =
    "SELECT coalesce(group_concat(type || name || coalesce(sql, '')), '') FROM "
    "(SELECT * FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%' "
    "ORDER BY name)";

// Counts what cannot be, though each page be sound: jobs whose counters or
// epochs are not those of their rows, steps of a kind that they are not, and a
// last version that is not the last.
constexpr char kCountWrongs[] = R"sql(
SELECT (SELECT count(*) FROM jobs WHERE
    planned_steps != (SELECT count(*) FROM steps
                      WHERE job_id = id AND planned = 1) OR
    reported_steps != (SELECT count(*) FROM steps
                       WHERE job_id = id AND planned = 0) OR
    next_order <= (SELECT coalesce(max(last_order), 0) FROM steps
                   WHERE job_id = id) OR
    calibration_epoch IS NOT (SELECT max(epoch) FROM epochs
                              WHERE job_id = id))
  + (SELECT count(*) FROM steps WHERE planned != EXISTS(
       SELECT 1 FROM plans WHERE plans.job_id = steps.job_id
                             AND plans.step = steps.step))
  + (SELECT count(*) != 1 OR
            max(version) < (SELECT coalesce(max(version), 0) FROM epochs) OR
            max(version) < (SELECT coalesce(max(birth), 0) FROM jobs)
     FROM last_version)
)sql";

absl::Status Corrupt(const SqliteDatabase& database,
                     const std::string& problem) {
  return StoreFailed(database.path(), absl::StrCat("corrupt: ", problem));
}

// The file's version, 0 if it holds nothing yet. Errors: not ours, newer, its
// pages or indexes are corrupt.
absl::StatusOr<int64_t> CheckFile(SqliteDatabase* database) {
  absl::StatusOr<int64_t> tables =
      database->QueryInt("SELECT count(*) FROM sqlite_schema");
  if (!tables.ok()) return tables.status();
  absl::StatusOr<int64_t> owner = database->QueryInt("PRAGMA application_id");
  if (!owner.ok()) return owner.status();
  absl::StatusOr<int64_t> version = database->QueryInt("PRAGMA user_version");
  if (!version.ok()) return version.status();
  if (*tables == 0 && *owner == 0 && *version == 0) return 0;
  if (*owner != kStoreApplicationId || *version < 1) {
    return StoreFailed(database->path(), "a database of another program");
  }
  if (*version > kStoreSchemaVersion) {
    return StoreFailed(
        database->path(),
        absl::StrCat("written by a newer version (schema ", *version,
                     ", this one knows up to ", kStoreSchemaVersion, ")"));
  }
  absl::StatusOr<std::string> check =
      database->QueryText("PRAGMA integrity_check(1)");
  if (!check.ok()) return check.status();
  if (*check != "ok") return Corrupt(*database, *check);
  return *version;
}

absl::Status KeepLog(SqliteDatabase* database) {
  absl::StatusOr<std::string> journal =
      database->QueryText("PRAGMA journal_mode = WAL");
  if (!journal.ok()) return journal.status();
  if (*journal != "wal") {
    return StoreFailed(database->path(), "cannot keep a write-ahead log here");
  }
  // Large plans fill pages fast: 4,000 of them (16 MB) between checkpoints.
  return database->Execute(
      "PRAGMA synchronous = FULL;"
      "PRAGMA foreign_keys = ON;"
      "PRAGMA wal_autocheckpoint = 4000;"
      "PRAGMA journal_size_limit = 67108864");
}

// Brings the tables from `version` up to kStoreSchemaVersion, all or none.
absl::Status Upgrade(SqliteDatabase* database, int64_t version) {
  SqliteTransaction transaction(database);
  absl::Status status = transaction.Begin();
  for (int64_t from = version; status.ok() && from < kStoreSchemaVersion;
       ++from) {
    status = database->Execute(kUpgrades[from]);
  }
  if (status.ok()) {
    status = database->Execute(
        absl::StrCat("PRAGMA application_id = ", kStoreApplicationId,
                     "; PRAGMA user_version = ", kStoreSchemaVersion));
  }
  if (status.ok()) status = transaction.Commit();
  return status;
}

// Errors: the tables are not those of this version, or do not agree with each
// other.
absl::Status CheckTables(SqliteDatabase* database) {
  absl::StatusOr<SqliteDatabase> empty = SqliteDatabase::OpenInMemory();
  if (!empty.ok()) return empty.status();
  absl::Status status = AddRowSum(&*empty);
  if (status.ok()) status = Upgrade(&*empty, 0);
  if (!status.ok()) return status;
  absl::StatusOr<std::string> wanted = empty->QueryText(kTables);
  if (!wanted.ok()) return wanted.status();
  absl::StatusOr<std::string> tables = database->QueryText(kTables);
  if (!tables.ok()) return tables.status();
  if (*tables != *wanted) return Corrupt(*database, "other tables than ours");
  absl::StatusOr<int64_t> strays =
      database->QueryInt("SELECT count(*) FROM pragma_foreign_key_check");
  if (!strays.ok()) return strays.status();
  absl::StatusOr<int64_t> wrongs = database->QueryInt(kCountWrongs);
  if (!wrongs.ok()) return wrongs.status();
  if (*strays + *wrongs == 0) return absl::OkStatus();
  return Corrupt(*database, absl::StrCat(*strays + *wrongs,
                                         " rows do not agree with others"));
}

}  // namespace

absl::StatusOr<StoreDatabase> OpenStoreDatabase(const std::string& path) {
  // Daemons that name the file differently must meet at one lock.
  std::error_code error;
  const std::filesystem::path file =
      std::filesystem::weakly_canonical(path, error);
  if (error) return StoreFailed(path, error.message());
  if (std::filesystem::is_directory(file, error)) {
    return StoreFailed(path, "a directory");
  }
  absl::StatusOr<FileLock> lock = FileLock::Acquire(file.string() + "-lock");
  if (absl::IsFailedPrecondition(lock.status())) {
    return StoreFailed(path, "another daemon holds it");
  }
  if (!lock.ok())
    return StoreFailed(path, std::string(lock.status().message()));
  absl::StatusOr<SqliteDatabase> database =
      SqliteDatabase::Open(path, kBusyMilliseconds);
  if (!database.ok()) return database.status();
  absl::StatusOr<int64_t> version = CheckFile(&*database);
  if (!version.ok()) return version.status();
  absl::Status status = KeepLog(&*database);
  if (status.ok()) status = AddRowSum(&*database);
  if (status.ok() && *version < kStoreSchemaVersion) {
    status = Upgrade(&*database, *version);
  }
  if (status.ok()) status = CheckTables(&*database);
  if (!status.ok()) return status;
  return StoreDatabase{*std::move(lock), *std::move(database)};
}

}  // namespace skrull
