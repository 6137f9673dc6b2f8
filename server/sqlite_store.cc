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

// Selects what ReadRecord reads. A record whose epoch is missing is found, too,
// so that ReadRecord can say so.
std::string RecordsWhere(const std::string& condition) {
  return absl::StrCat(
      "SELECT name, spec, generation, owner, create_time_micros, birth, "
      "calibration_epoch, calibration, version, jobs.sum = row_sum(name, spec, "
      "generation, owner, create_time_micros, birth), epochs.sum = "
      "row_sum(job_id, epoch, version, calibration) FROM jobs "
      "LEFT JOIN epochs ON job_id = id AND epoch = calibration_epoch WHERE ",
      condition);
}

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
  const std::pair<SqliteStatement*, std::string> statements[] = {
      {&count_jobs_, "SELECT count(*) FROM jobs"},
      {&count_owner_jobs_, "SELECT count(*) FROM jobs WHERE owner = ?"},
      {&next_version_,
       "UPDATE last_version SET version = version + 1 RETURNING version"},
      {&insert_job_,
       "INSERT INTO jobs(name, spec, generation, owner, create_time_micros, "
       "birth, calibration_epoch, sum) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, "
       "row_sum(?1, ?2, ?3, ?4, ?5, ?6)) RETURNING id"},
      {&delete_job_, "DELETE FROM jobs WHERE name = ?"},
      {&select_record_, RecordsWhere("name = ?")},
      {&list_records_, RecordsWhere("name > ? ORDER BY name LIMIT ?")},
      {&select_job_,
       "SELECT id, generation, birth, next_order, planned_steps, "
       "reported_steps FROM jobs WHERE name = ?"},
      {&advance_job_, "UPDATE jobs SET calibration_epoch = ? WHERE id = ?"},
      {&insert_epoch_,
       "INSERT INTO epochs(job_id, epoch, version, calibration, sum) "
       "VALUES(?1, ?2, ?3, ?4, row_sum(?1, ?2, ?3, ?4))"},
      {&delete_epochs_, "DELETE FROM epochs WHERE job_id = ? AND epoch <= ?"},
      {&list_epochs_,
       "SELECT calibration, sum = row_sum(job_id, epoch, version, calibration) "
       "FROM epochs WHERE job_id = ? ORDER BY epoch"},
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
       "SELECT request_digest, plan, plans.sum = row_sum(job_id, step, "
       "attempt, "
       "request_digest, plan) FROM plans JOIN jobs ON id = job_id "
       "WHERE name = ? AND generation = ? AND step = ? AND attempt = ?"},
      {&insert_plan_,
       "INSERT INTO plans(job_id, step, attempt, request_digest, plan, sum) "
       "VALUES(?1, ?2, ?3, ?4, ?5, row_sum(?1, ?2, ?3, ?4, ?5))"},
      {&upsert_report_,
       "INSERT INTO reports(job_id, step, attempt, rank, report, sum) "
       "VALUES(?1, ?2, ?3, ?4, ?5, row_sum(?1, ?2, ?3, ?4, ?5)) "
       "ON CONFLICT DO UPDATE SET report = excluded.report, "
       "sum = excluded.sum"},
      {&list_reports_,
       "SELECT report, reports.sum = row_sum(job_id, step, attempt, rank, "
       "report) FROM reports JOIN jobs ON id = job_id "
       "WHERE name = ? AND generation = ? AND step = ? AND attempt = ? "
       "ORDER BY rank LIMIT ?"},
      {&list_steps_,
       "SELECT step, (SELECT max(attempt) FROM plans WHERE "
       "plans.job_id = steps.job_id AND plans.step = steps.step) "
       "FROM steps JOIN jobs ON id = job_id "
       "WHERE name = ? AND generation = ? AND planned = 1 "
       "ORDER BY last_order DESC LIMIT ?"},
  };
  for (const auto& [statement, sql] : statements) {
    absl::StatusOr<SqliteStatement> prepared = database_.Prepare(sql);
    if (!prepared.ok()) return prepared.status();
    *statement = *std::move(prepared);
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------
// Plans and reports.

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
  if (select_plan_.Int(2) != 1) {
    return StoreFailed(
        database_.path(),
        absl::StrCat("corrupt: the plan of job \"", key.job, "\", step ",
                     key.step, ", attempt ", key.attempt));
  }
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
  absl::StatusOr<JobRow> job =
      FindJob({record.key.job, record.generation, record.birth});
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

absl::Status SqliteStore::PutReport(const JobLife& life,
                                    const v1::StepReport& report,
                                    int64_t kept_steps) {
  MutexLock lock(&mutex_);
  absl::Status status = database_.Execute(kDeferSync);
  if (!status.ok()) return status;
  status = StoreReport(life, report, kept_steps);
  absl::Status sync = database_.Execute(kSyncCommits);
  return status.ok() ? sync : status;
}

absl::Status SqliteStore::StoreReport(const JobLife& life,
                                      const v1::StepReport& report,
                                      int64_t kept_steps) {
  SqliteTransaction transaction(&database_);
  absl::Status status = transaction.Begin();
  if (!status.ok()) return status;
  absl::StatusOr<JobRow> job = FindJob(life);
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
    const PlanKey& key, int64_t generation, int64_t limit) {
  MutexLock lock(&mutex_);
  SqliteReset reset(&list_reports_);
  // SQLite takes a negative limit for none.
  list_reports_.BindText(0, key.job)
      .Bind(1, generation)
      .Bind(2, key.step)
      .Bind(3, key.attempt)
      .Bind(4, std::max<int64_t>(0, limit));
  std::vector<v1::StepReport> reports;
  while (true) {
    absl::StatusOr<bool> row = list_reports_.Step();
    if (!row.ok()) return row.status();
    if (!*row) return reports;
    v1::StepReport report;
    if (list_reports_.Int(1) != 1 ||
        !report.ParseFromString(list_reports_.Bytes(0))) {
      return StoreFailed(
          database_.path(),
          absl::StrCat("corrupt: a report of job \"", key.job, "\", step ",
                       key.step, ", attempt ", key.attempt));
    }
    reports.push_back(std::move(report));
  }
}

absl::StatusOr<std::vector<PlanKey>> SqliteStore::LatestSteps(
    const std::string& job, int64_t generation, int64_t limit) {
  MutexLock lock(&mutex_);
  SqliteReset reset(&list_steps_);
  list_steps_.BindText(0, job)
      .Bind(1, generation)
      .Bind(2, std::max<int64_t>(0, limit));
  std::vector<PlanKey> keys;
  while (true) {
    absl::StatusOr<bool> row = list_steps_.Step();
    if (!row.ok()) return row.status();
    if (!*row) return keys;
    keys.push_back(
        {job, list_steps_.Int(0), static_cast<int32_t>(list_steps_.Int(1))});
  }
}

}  // namespace skrull
