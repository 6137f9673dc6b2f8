// The store that survives: one SQLite database file, held by one daemon.
//
// Durability: a call that changes jobs or plans has synced the write-ahead log
// to disk before it returns. A report survives the death of the process at
// once, but a power failure may take the last ones: thousands of ranks report
// each step, and losing a report loses no agreement.
//
// A byte of a row that changed on the disk fails the call that reads it, with
// kStoreFailed; what the rows' places and numbers hold, OpenStoreDatabase
// checks.
//
// One daemon at a time may hold the file; tools may read it meanwhile, so that
// `sqlite3 PATH ".backup COPY"` makes a consistent copy.
#ifndef SKRULL_SERVER_SQLITE_STORE_H_
#define SKRULL_SERVER_SQLITE_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "skrull/server/file_lock.h"
#include "skrull/server/mutex.h"
#include "skrull/server/sqlite.h"
#include "skrull/server/store.h"
#include "skrull/server/store_rules.h"

namespace skrull {

// One connection behind one mutex: calls run one at a time. O(log) statements
// a call, plus what it returns or forgets.
class SqliteStore final : public Store {
 public:
  // Errors: as OpenStoreDatabase (sqlite_schema.h).
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(
      const std::string& path);

  absl::StatusOr<JobRecord> Create(const JobRecord& wanted,
                                   const CreateTerms& terms) override;
  absl::StatusOr<JobRecord> Get(const std::string& name) override;
  absl::StatusOr<std::vector<JobRecord>> List(const std::string& after,
                                              int64_t limit) override;
  absl::Status Delete(const JobLife& life) override;
  absl::StatusOr<int64_t> Count() override;
  absl::StatusOr<JobRecord> Advance(const JobLife& life,
                                    const v1::Calibration& next) override;
  absl::StatusOr<std::vector<v1::Calibration>> Calibrations(
      const std::string& name, int64_t generation) override;

  absl::StatusOr<PlanRecord> Commit(const PlanRecord& record,
                                    int64_t kept_steps) override;
  absl::StatusOr<std::optional<PlanRecord>> Find(const PlanKey& key,
                                                 int64_t generation) override;
  absl::Status PutReport(const JobLife& life, const v1::StepReport& report,
                         int64_t kept_steps) override;
  absl::StatusOr<std::vector<v1::StepReport>> Reports(const PlanKey& key,
                                                      int64_t generation,
                                                      int64_t limit) override;
  absl::StatusOr<std::vector<PlanKey>> LatestSteps(const std::string& job,
                                                   int64_t generation,
                                                   int64_t limit) override;

 private:
  // The row of a job that bookkeeping of its epochs and steps needs.
  struct JobRow {
    int64_t id = 0;
    int64_t generation = 0;
    int64_t birth = 0;
    int64_t next_order = 0;
    int64_t planned_steps = 0;
    int64_t reported_steps = 0;
  };
  enum class StepKind { kNone, kReported, kPlanned };

  SqliteStore() = default;

  absl::Status PrepareStatements() SKRULL_REQUIRES(mutex_);

  // Of all jobs, and of the owner's.
  absl::StatusOr<JobCounts> CountJobs(const std::string& owner)
      SKRULL_REQUIRES(mutex_);
  // The next version; stored with the transaction it is in.
  absl::StatusOr<int64_t> NextVersion() SKRULL_REQUIRES(mutex_);
  // In place of the job of that name, if there is one.
  absl::Status StoreJob(const JobRecord& job) SKRULL_REQUIRES(mutex_);
  // The record's epoch, put in force by its version.
  absl::Status StoreEpoch(int64_t job_id, const JobRecord& record)
      SKRULL_REQUIRES(mutex_);
  absl::StatusOr<JobRecord> ReadRecord(const SqliteStatement& row)
      SKRULL_REQUIRES(mutex_);
  absl::StatusOr<std::optional<JobRecord>> FindRecord(const std::string& name)
      SKRULL_REQUIRES(mutex_);
  // The job in that very life, or why there is none.
  absl::StatusOr<JobRow> FindJob(const JobLife& life) SKRULL_REQUIRES(mutex_);
  absl::StatusOr<std::optional<PlanRecord>> FindPlan(const PlanKey& key,
                                                     int64_t generation)
      SKRULL_REQUIRES(mutex_);
  // Makes `step` the newest of its kind, forgets the oldest ones beyond
  // `kept_steps`, and stores the job's counters.
  absl::Status TouchStep(JobRow job, int64_t step, bool planned,
                         int64_t kept_steps) SKRULL_REQUIRES(mutex_);
  absl::StatusOr<StepKind> FindStep(int64_t job_id, int64_t step)
      SKRULL_REQUIRES(mutex_);
  absl::Status StoreReport(const JobLife& life, const v1::StepReport& report,
                           int64_t kept_steps) SKRULL_REQUIRES(mutex_);

  // Each is destroyed before what is declared above it: statements, connection,
  // lock.
  Mutex mutex_;
  FileLock lock_ SKRULL_GUARDED_BY(mutex_);
  SqliteDatabase database_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement count_jobs_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement count_owner_jobs_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement next_version_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement insert_job_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement delete_job_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement select_record_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement list_records_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement select_job_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement update_job_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement advance_job_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement insert_epoch_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement delete_epochs_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement list_epochs_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement select_step_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement upsert_step_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement delete_oldest_step_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement select_plan_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement insert_plan_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement upsert_report_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement list_reports_ SKRULL_GUARDED_BY(mutex_);
  SqliteStatement list_steps_ SKRULL_GUARDED_BY(mutex_);
};

}  // namespace skrull

#endif  // SKRULL_SERVER_SQLITE_STORE_H_
