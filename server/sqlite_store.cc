#include "skrull/server/sqlite_store.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/server/convert.h"
#include "skrull/server/sqlite_schema.h"
#include "skrull/server/store_rules.h"

namespace skrull {
namespace {

// Syncs the log on every commit, as OpenStoreDatabase set it.
constexpr char kSyncCommits[] = "PRAGMA synchronous = FULL";
// Syncs the log only with the next synced commit, or at a checkpoint.
constexpr char kDeferSync[] = "PRAGMA synchronous = NORMAL";

}  // namespace

// ---------------------------------------------------------------------------
// Opening.

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(
    const std::string& path) {
  std::unique_ptr<SqliteStore> store(new SqliteStore);
  MutexLock lock(&store->mutex_);
  absl::StatusOr<StoreDatabase> opened = OpenStoreDatabase(path);
  if (!opened.ok()) return opened.status();
  store->lock_ = std::move(opened->lock);
  store->database_ = std::move(opened->database);
  absl::Status status = store->PrepareStatements();
  if (!status.ok()) return status;
  return store;
}

absl::Status SqliteStore::PrepareStatements() {
  const std::pair<SqliteStatement*, const char*> statements[] = {
      {&count_jobs_, "SELECT count(*) FROM jobs"},
      {&insert_job_,
       "INSERT INTO jobs(name, spec, generation, calibration_epoch, "
       "create_time_micros) VALUES(?, ?, ?, ?, ?)"},
      {&delete_job_, "DELETE FROM jobs WHERE name = ?"},
      {&select_record_,
       "SELECT name, spec, generation, calibration_epoch, create_time_micros "
       "FROM jobs WHERE name = ?"},
      {&list_records_,
       "SELECT name, spec, generation, calibration_epoch, create_time_micros "
       "FROM jobs WHERE name > ? ORDER BY name LIMIT ?"},
      {&select_job_,
       "SELECT id, generation, next_order, planned_steps, reported_steps "
       "FROM jobs WHERE name = ?"},
      {&update_job_,
       "UPDATE jobs SET next_order = ?, planned_steps = ?, reported_steps = ? "
       "WHERE id = ?"},
      {&select_step_,
       "SELECT planned FROM steps WHERE job_id = ? AND step = ?"},
      {&upsert_step_,
       "INSERT INTO steps(job_id, step, planned, last_order) "
       "VALUES(?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
       "planned = excluded.planned, last_order = excluded.last_order"},
      {&delete_oldest_step_,
       "DELETE FROM steps WHERE job_id = ?1 AND step = (SELECT step FROM steps "
       "WHERE job_id = ?1 AND planned = ?2 ORDER BY last_order LIMIT 1)"},
      {&select_plan_,
       "SELECT request_digest, plan FROM plans JOIN jobs ON id = job_id "
       "WHERE name = ? AND generation = ? AND step = ? AND attempt = ?"},
      {&insert_plan_,
       "INSERT INTO plans(job_id, step, attempt, request_digest, plan) "
       "VALUES(?, ?, ?, ?, ?)"},
      {&upsert_report_,
       "INSERT INTO reports(job_id, step, attempt, rank, report) "
       "VALUES(?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
       "report = excluded.report"},
      {&list_reports_,
       "SELECT report FROM reports JOIN jobs ON id = job_id "
       "WHERE name = ? AND generation = ? AND step = ? AND attempt = ? "
       "ORDER BY rank"},
  };
  for (const auto& [statement, sql] : statements) {
    absl::StatusOr<SqliteStatement> prepared = database_.Prepare(sql);
    if (!prepared.ok()) return prepared.status();
    *statement = *std::move(prepared);
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------
// Jobs.

absl::StatusOr<JobRecord> SqliteStore::ReadRecord(const SqliteStatement& row) {
  JobRecord record;
  record.name = row.Bytes(0);
  if (!record.spec.ParseFromString(row.Bytes(1))) {
    return StoreFailed(
        database_.path(),
        absl::StrCat("the spec of job \"", record.name, "\" does not parse"));
  }
  record.generation = row.Int(2);
  record.calibration_epoch = row.Int(3);
  record.create_time_micros = row.Int(4);
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

absl::StatusOr<JobRecord> SqliteStore::Create(const JobRecord& wanted,
                                              int64_t max_jobs) {
  MutexLock lock(&mutex_);
  SqliteTransaction transaction(&database_);
  absl::Status status = transaction.Begin();
  if (!status.ok()) return status;
  absl::StatusOr<std::optional<JobRecord>> standing = FindRecord(wanted.name);
  if (!standing.ok()) return standing.status();
  int64_t job_count = 0;
  {
    SqliteReset reset(&count_jobs_);
    absl::StatusOr<bool> row = count_jobs_.Step();
    if (!row.ok()) return row.status();
    job_count = count_jobs_.Int(0);
  }
  absl::StatusOr<std::optional<JobRecord>> record =
      DecideCreate(*standing, wanted, job_count, max_jobs);
  if (!record.ok()) return record.status();
  if (!record->has_value()) return **standing;
  const JobRecord& job = **record;
  status = delete_job_.BindText(0, job.name).Run();
  if (status.ok()) {
    status = insert_job_.BindText(0, job.name)
                 .BindBlob(1, CanonicalBytes(job.spec))
                 .Bind(2, job.generation)
                 .Bind(3, job.calibration_epoch)
                 .Bind(4, job.create_time_micros)
                 .Run();
  }
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

absl::Status SqliteStore::Delete(const std::string& name, int64_t generation) {
  MutexLock lock(&mutex_);
  SqliteTransaction transaction(&database_);
  absl::Status status = transaction.Begin();
  if (!status.ok()) return status;
  absl::StatusOr<std::optional<JobRecord>> standing = FindRecord(name);
  if (!standing.ok()) return standing.status();
  if (!standing->has_value()) return JobNotFound(name);
  status = CheckGeneration(name, (*standing)->generation, generation);
  if (status.ok()) status = delete_job_.BindText(0, name).Run();
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

// ---------------------------------------------------------------------------
// Plans and reports.

absl::StatusOr<SqliteStore::JobRow> SqliteStore::FindJob(
    const std::string& name, int64_t generation) {
  SqliteReset reset(&select_job_);
  absl::StatusOr<bool> row = select_job_.BindText(0, name).Step();
  if (!row.ok()) return row.status();
  if (!*row) return JobNotFound(name);
  const JobRow job = {.id = select_job_.Int(0),
                      .generation = select_job_.Int(1),
                      .next_order = select_job_.Int(2),
                      .planned_steps = select_job_.Int(3),
                      .reported_steps = select_job_.Int(4)};
  if (job.generation != generation) {
    return GenerationMismatch(name, job.generation, generation);
  }
  return job;
}

absl::StatusOr<SqliteStore::StepKind> SqliteStore::FindStep(int64_t job_id,
                                                            int64_t step) {
  SqliteReset reset(&select_step_);
  absl::StatusOr<bool> row = select_step_.Bind(0, job_id).Bind(1, step).Step();
  if (!row.ok()) return row.status();
  if (!*row) return StepKind::kNone;
  return select_step_.Int(0) != 0 ? StepKind::kPlanned : StepKind::kReported;
}

absl::StatusOr<std::optional<PlanRecord>> SqliteStore::FindPlan(
    const PlanKey& key, int64_t generation) {
  SqliteReset reset(&select_plan_);
  absl::StatusOr<bool> row = select_plan_.BindText(0, key.job)
                                 .Bind(1, generation)
                                 .Bind(2, key.step)
                                 .Bind(3, key.attempt)
                                 .Step();
  if (!row.ok()) return row.status();
  if (!*row) return std::optional<PlanRecord>();
  return std::optional<PlanRecord>({.key = key,
                                    .generation = generation,
                                    .request_digest = select_plan_.Bytes(0),
                                    .plan = select_plan_.Bytes(1)});
}

absl::Status SqliteStore::TouchStep(JobRow job, int64_t step, bool planned,
                                    int64_t kept_steps) {
  absl::StatusOr<StepKind> kind = FindStep(job.id, step);
  if (!kind.ok()) return kind.status();
  if (*kind == StepKind::kPlanned) --job.planned_steps;
  if (*kind == StepKind::kReported) --job.reported_steps;
  int64_t& count = planned ? job.planned_steps : job.reported_steps;
  absl::Status status = upsert_step_.Bind(0, job.id)
                            .Bind(1, step)
                            .Bind(2, planned ? 1 : 0)
                            .Bind(3, job.next_order++)
                            .Run();
  ++count;
  while (status.ok() && count > std::max<int64_t>(1, kept_steps)) {
    status = delete_oldest_step_.Bind(0, job.id).Bind(1, planned ? 1 : 0).Run();
    --count;
  }
  if (!status.ok()) return status;
  return update_job_.Bind(0, job.next_order)
      .Bind(1, job.planned_steps)
      .Bind(2, job.reported_steps)
      .Bind(3, job.id)
      .Run();
}

absl::StatusOr<PlanRecord> SqliteStore::Commit(const PlanRecord& record,
                                               int64_t kept_steps) {
  MutexLock lock(&mutex_);
  SqliteTransaction transaction(&database_);
  absl::Status status = transaction.Begin();
  if (!status.ok()) return status;
  absl::StatusOr<JobRow> job = FindJob(record.key.job, record.generation);
  if (!job.ok()) return job.status();
  absl::StatusOr<std::optional<PlanRecord>> standing =
      FindPlan(record.key, record.generation);
  if (!standing.ok()) return standing.status();
  if (standing->has_value()) return **standing;
  status = TouchStep(*job, record.key.step, true, kept_steps);
  if (status.ok()) {
    status = insert_plan_.Bind(0, job->id)
                 .Bind(1, record.key.step)
                 .Bind(2, record.key.attempt)
                 .BindText(3, record.request_digest)
                 .BindBlob(4, record.plan)
                 .Run();
  }
  if (status.ok()) status = transaction.Commit();
  if (!status.ok()) return status;
  return record;
}

absl::StatusOr<std::optional<PlanRecord>> SqliteStore::Find(
    const PlanKey& key, int64_t generation) {
  MutexLock lock(&mutex_);
  return FindPlan(key, generation);
}

absl::Status SqliteStore::PutReport(const std::string& job, int64_t generation,
                                    const v1::StepReport& report,
                                    int64_t kept_steps) {
  MutexLock lock(&mutex_);
  absl::Status status = database_.Execute(kDeferSync);
  if (!status.ok()) return status;
  status = StoreReport(job, generation, report, kept_steps);
  absl::Status sync = database_.Execute(kSyncCommits);
  return status.ok() ? sync : status;
}

absl::Status SqliteStore::StoreReport(const std::string& name,
                                      int64_t generation,
                                      const v1::StepReport& report,
                                      int64_t kept_steps) {
  SqliteTransaction transaction(&database_);
  absl::Status status = transaction.Begin();
  if (!status.ok()) return status;
  absl::StatusOr<JobRow> job = FindJob(name, generation);
  if (!job.ok()) return job.status();
  absl::StatusOr<StepKind> kind = FindStep(job->id, report.step());
  if (!kind.ok()) return kind.status();
  if (*kind != StepKind::kPlanned) {
    status = TouchStep(*job, report.step(), false, kept_steps);
  }
  if (status.ok()) {
    status = upsert_report_.Bind(0, job->id)
                 .Bind(1, report.step())
                 .Bind(2, report.attempt())
                 .Bind(3, report.rank())
                 .BindBlob(4, CanonicalBytes(report))
                 .Run();
  }
  if (status.ok()) status = transaction.Commit();
  return status;
}

absl::StatusOr<std::vector<v1::StepReport>> SqliteStore::Reports(
    const PlanKey& key, int64_t generation) {
  MutexLock lock(&mutex_);
  SqliteReset reset(&list_reports_);
  list_reports_.BindText(0, key.job)
      .Bind(1, generation)
      .Bind(2, key.step)
      .Bind(3, key.attempt);
  std::vector<v1::StepReport> reports;
  while (true) {
    absl::StatusOr<bool> row = list_reports_.Step();
    if (!row.ok()) return row.status();
    if (!*row) return reports;
    v1::StepReport report;
    if (!report.ParseFromString(list_reports_.Bytes(0))) {
      return StoreFailed(database_.path(), "a report does not parse");
    }
    reports.push_back(std::move(report));
  }
}

}  // namespace skrull
