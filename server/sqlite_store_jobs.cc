// Jobs and their epochs in SqliteStore.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/server/convert.h"
#include "skrull/server/sqlite_store.h"
#include "skrull/server/store_rules.h"

namespace skrull {

absl::StatusOr<JobRecord> SqliteStore::ReadRecord(const SqliteStatement& row) {
  JobRecord record;
  record.name = row.Bytes(0);
  const std::string& path = database_.path();
  const auto corrupt = [&](const std::string& what) {
    return StoreFailed(
        path, absl::StrCat("corrupt: ", what, " of job \"", record.name, "\""));
  };
  if (row.Int(9) != 1 || !record.spec.ParseFromString(row.Bytes(1))) {
    return corrupt("the record");
  }
  record.generation = row.Int(2);
  record.owner = row.Bytes(3);
  record.create_time_micros = row.Int(4);
  record.birth = row.Int(5);
  record.version = row.Int(8);
  // The sum of an epoch that is not there is NULL, which reads as 0.
  if (row.Int(10) != 1 || !record.calibration.ParseFromString(row.Bytes(7)) ||
      record.calibration.epoch() != row.Int(6)) {
    return corrupt(absl::StrCat("epoch ", row.Int(6)));
  }
  return record;
}

absl::StatusOr<std::optional<JobRecord>> SqliteStore::FindRecord(
    const std::string& name) {
  SqliteReset reset(&select_record_);
  absl::StatusOr<bool> row = select_record_.BindText(0, name).Step();
  if (!row.ok()) return row.status();
  if (!*row) return std::optional<JobRecord>();
  absl::StatusOr<JobRecord> record = ReadRecord(select_record_);
  if (!record.ok()) return record.status();
  return std::optional<JobRecord>(*std::move(record));
}

absl::StatusOr<JobCounts> SqliteStore::CountJobs(const std::string& owner) {
  SqliteReset reset_all(&count_jobs_);
  absl::StatusOr<bool> row = count_jobs_.Step();
  if (!row.ok()) return row.status();
  SqliteReset reset_owner(&count_owner_jobs_);
  row = count_owner_jobs_.BindText(0, owner).Step();
  if (!row.ok()) return row.status();
  return JobCounts{.all = count_jobs_.Int(0),
                   .of_owner = count_owner_jobs_.Int(0)};
}

absl::StatusOr<int64_t> SqliteStore::NextVersion() {
  SqliteReset reset(&next_version_);
  absl::StatusOr<bool> row = next_version_.Step();
  if (!row.ok()) return row.status();
  if (!*row) return StoreFailed(database_.path(), "no last version");
  return next_version_.Int(0);
}

absl::Status SqliteStore::StoreEpoch(int64_t job_id, const JobRecord& record) {
  return insert_epoch_.Bind(0, job_id)
      .Bind(1, record.calibration.epoch())
      .Bind(2, record.version)
      .BindBlob(3, CanonicalBytes(record.calibration))
      .Run();
}

absl::Status SqliteStore::StoreJob(const JobRecord& job) {
  absl::Status status = delete_job_.BindText(0, job.name).Run();
  if (!status.ok()) return status;
  int64_t id = 0;
  {
    SqliteReset reset(&insert_job_);
    absl::StatusOr<bool> row = insert_job_.BindText(0, job.name)
                                   .BindBlob(1, CanonicalBytes(job.spec))
                                   .Bind(2, job.generation)
                                   .BindText(3, job.owner)
                                   .Bind(4, job.create_time_micros)
                                   .Bind(5, job.birth)
                                   .Bind(6, job.calibration.epoch())
                                   .Step();
    if (!row.ok()) return row.status();
    id = insert_job_.Int(0);
  }
  return StoreEpoch(id, job);
}

absl::StatusOr<JobRecord> SqliteStore::Create(const JobRecord& wanted,
                                              const CreateTerms& terms) {
  MutexLock lock(&mutex_);
  SqliteTransaction transaction(&database_);
  absl::Status status = transaction.Begin();
  if (!status.ok()) return status;
  absl::StatusOr<std::optional<JobRecord>> standing = FindRecord(wanted.name);
  if (!standing.ok()) return standing.status();
  absl::StatusOr<JobCounts> counts = CountJobs(wanted.owner);
  if (!counts.ok()) return counts.status();
  absl::StatusOr<std::optional<JobRecord>> decided =
      DecideCreate(*standing, wanted, *counts, terms);
  if (!decided.ok()) return decided.status();
  if (!decided->has_value()) return **standing;
  absl::StatusOr<int64_t> version = NextVersion();
  if (!version.ok()) return version.status();
  JobRecord job = **std::move(decided);
  job.birth = job.version = *version;
  status = StoreJob(job);
  if (status.ok()) status = transaction.Commit();
  if (!status.ok()) return status;
  return job;
}

absl::StatusOr<JobRecord> SqliteStore::Get(const std::string& name) {
  MutexLock lock(&mutex_);
  absl::StatusOr<std::optional<JobRecord>> record = FindRecord(name);
  if (!record.ok()) return record.status();
  if (!record->has_value()) return JobNotFound(name);
  return **record;
}

absl::StatusOr<std::vector<JobRecord>> SqliteStore::List(
    const std::string& after, int64_t limit) {
  MutexLock lock(&mutex_);
  SqliteReset reset(&list_records_);
  // SQLite takes a negative limit for none.
  list_records_.BindText(0, after).Bind(1, std::max<int64_t>(0, limit));
  std::vector<JobRecord> records;
  while (true) {
    absl::StatusOr<bool> row = list_records_.Step();
    if (!row.ok()) return row.status();
    if (!*row) return records;
    absl::StatusOr<JobRecord> record = ReadRecord(list_records_);
    if (!record.ok()) return record.status();
    records.push_back(*std::move(record));
  }
}

absl::Status SqliteStore::Delete(const JobLife& life) {
  MutexLock lock(&mutex_);
  SqliteTransaction transaction(&database_);
  absl::Status status = transaction.Begin();
  if (!status.ok()) return status;
  absl::StatusOr<std::optional<JobRecord>> standing = FindRecord(life.name);
  if (!standing.ok()) return standing.status();
  if (!standing->has_value()) return JobNotFound(life.name);
  status = CheckLife(**standing, life);
  if (status.ok()) status = NextVersion().status();
  if (status.ok()) status = delete_job_.BindText(0, life.name).Run();
  if (status.ok()) status = transaction.Commit();
  return status;
}

absl::StatusOr<int64_t> SqliteStore::Count() {
  MutexLock lock(&mutex_);
  SqliteReset reset(&count_jobs_);
  absl::StatusOr<bool> row = count_jobs_.Step();
  if (!row.ok()) return row.status();
  return count_jobs_.Int(0);
}

absl::StatusOr<SqliteStore::JobRow> SqliteStore::FindJob(const JobLife& life) {
  SqliteReset reset(&select_job_);
  absl::StatusOr<bool> row = select_job_.BindText(0, life.name).Step();
  if (!row.ok()) return row.status();
  if (!*row) return JobNotFound(life.name);
  const JobRow job = {.id = select_job_.Int(0),
                      .generation = select_job_.Int(1),
                      .birth = select_job_.Int(2),
                      .next_order = select_job_.Int(3),
                      .planned_steps = select_job_.Int(4),
                      .reported_steps = select_job_.Int(5)};
  if (job.generation != life.generation) {
    return GenerationMismatch(life.name, job.generation, life.generation);
  }
  absl::Status same = CheckBirth(life.name, job.birth, life.birth);
  if (!same.ok()) return same;
  return job;
}

absl::StatusOr<JobRecord> SqliteStore::Advance(const JobLife& life,
                                               const v1::Calibration& next) {
  MutexLock lock(&mutex_);
  SqliteTransaction transaction(&database_);
  absl::Status status = transaction.Begin();
  if (!status.ok()) return status;
  absl::StatusOr<JobRow> job = FindJob(life);
  if (!job.ok()) return job.status();
  absl::StatusOr<std::optional<JobRecord>> found = FindRecord(life.name);
  if (!found.ok()) return found.status();
  JobRecord& record = **found;
  if (!AdvancesTo(record, next)) return record;
  absl::StatusOr<int64_t> version = NextVersion();
  if (!version.ok()) return version.status();
  record.calibration = next;
  record.version = *version;
  status = advance_job_.Bind(0, next.epoch()).Bind(1, job->id).Run();
  if (status.ok()) status = StoreEpoch(job->id, record);
  if (status.ok()) {
    status = delete_epochs_.Bind(0, job->id)
                 .Bind(1, next.epoch() - kKeptEpochs)
                 .Run();
  }
  if (status.ok()) status = transaction.Commit();
  if (!status.ok()) return status;
  return record;
}

absl::StatusOr<std::vector<v1::Calibration>> SqliteStore::Calibrations(
    const std::string& name, int64_t generation) {
  MutexLock lock(&mutex_);
  absl::StatusOr<JobRow> job = FindJob({name, generation});
  if (!job.ok()) return job.status();
  SqliteReset reset(&list_epochs_);
  list_epochs_.Bind(0, job->id);
  std::vector<v1::Calibration> epochs;
  while (true) {
    absl::StatusOr<bool> row = list_epochs_.Step();
    if (!row.ok()) return row.status();
    if (!*row) return epochs;
    v1::Calibration epoch;
    if (list_epochs_.Int(1) != 1 ||
        !epoch.ParseFromString(list_epochs_.Bytes(0))) {
      return StoreFailed(
          database_.path(),
          absl::StrCat("corrupt: an epoch of job \"", name, "\""));
    }
    epochs.push_back(std::move(epoch));
  }
}

}  // namespace skrull
