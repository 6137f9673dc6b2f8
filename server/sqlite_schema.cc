#include "skrull/server/sqlite_schema.h"

#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
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
    // Owners, lives and epochs. calibration_epoch, always 0 before, now names
    // the row of `epochs` that is in force. X'1001' is
    // Calibration{cause: CALIBRATION_CAUSE_REGISTERED}. Ids rise with births.
    R"sql(
ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN birth INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_by_owner ON jobs(owner);
CREATE TABLE epochs(
  job_id INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
  epoch INTEGER NOT NULL,
  calibration BLOB NOT NULL,
  PRIMARY KEY(job_id, epoch)
) WITHOUT ROWID;
CREATE TABLE last_version(
  id INTEGER PRIMARY KEY CHECK(id = 0),
  version INTEGER NOT NULL
);
UPDATE jobs SET birth = id, version = id;
INSERT INTO epochs SELECT id, calibration_epoch, X'1001' FROM jobs;
INSERT INTO last_version SELECT 0, coalesce(max(seq), 0) FROM sqlite_sequence
  WHERE name = 'jobs';
)sql"};
static_assert(std::size(kUpgrades) == kStoreSchemaVersion);

// The file's version, 0 if it holds nothing yet. Errors: not ours, newer,
// corrupt.
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
      database->QueryText("PRAGMA quick_check(1)");
  if (!check.ok()) return check.status();
  if (*check != "ok") {
    return StoreFailed(database->path(), absl::StrCat("corrupt: ", *check));
  }
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
  if (status.ok() && *version < kStoreSchemaVersion) {
    status = Upgrade(&*database, *version);
  }
  if (!status.ok()) return status;
  return StoreDatabase{*std::move(lock), *std::move(database)};
}

}  // namespace skrull
