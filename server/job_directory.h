// The registered jobs, in memory, in step with the store.
//
// Looking a job up costs no I/O. A RegisteredJob is one life of a job, up to
// its deletion or replacement: work under way for a job that ended, and whose
// name was taken again, can tell the two apart even if their generations are
// equal.
//
// Where one daemon owns its store, what is in memory is what the store holds.
// Where others share it, the store tells of their changes, and what is in
// memory is what it held a moment ago: a caller that must not act on less than
// what it holds now first waits for JobStore::WhenCurrent.
#ifndef SKRULL_SERVER_JOB_DIRECTORY_H_
#define SKRULL_SERVER_JOB_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/planner/job.h"
#include "skrull/server/auth/authorize.h"
#include "skrull/server/auth/caller.h"
#include "skrull/server/job_store.h"
#include "skrull/server/log.h"
#include "skrull/server/metrics.h"
#include "skrull/server/mutex.h"

namespace skrull {

// A job in one of its epochs. Immutable.
struct CalibratedJob {
  v1::Calibration calibration;
  // The job's spec with the numbers in force, and what the planner makes of it.
  v1::JobSpec spec;
  Job job;
  // JobRecord::version of the record it was made of.
  int64_t version = 0;
};

// Thread-safe.
class RegisteredJob {
 public:
  // Errors: INVALID_ARGUMENT if the spec is not valid, as registered or with
  // the numbers in force.
  static absl::StatusOr<std::shared_ptr<RegisteredJob>> Create(
      uint64_t id, const JobRecord& record);

  // Never used again in this process.
  uint64_t id() const { return id_; }
  // As it was taken in: its epoch and version may have passed.
  const JobRecord& record() const { return record_; }
  // As registered: what no epoch changes (the pool, the policy).
  const Job& job() const { return job_; }

  // In the epoch in force. Plans are made of what this returns, once for each.
  std::shared_ptr<const CalibratedJob> calibrated() const
      SKRULL_EXCLUDES(mutex_);
  // The record that stands.
  JobRecord CurrentRecord() const SKRULL_EXCLUDES(mutex_);

  // Why the job ended; OK while it lives.
  absl::Status ended() const SKRULL_EXCLUDES(mutex_);

  // OK if `generation` is 0 or the job's. Errors: kGenerationMismatch.
  absl::Status CheckGeneration(int64_t generation) const;

  // Runs `write`, which stores something for the job, unless the job has ended;
  // no call of this daemon ends it before the write has returned. Errors: why
  // the job ended; those of `write`. Many may write at once.
  absl::Status Write(const std::function<absl::Status()>& write)
      SKRULL_EXCLUDES(mutex_);

 private:
  friend class JobDirectory;

  RegisteredJob(uint64_t id, const JobRecord& record, Job job,
                std::shared_ptr<const CalibratedJob> calibrated);

  // Whether `record` is of this life.
  bool IsLifeOf(const JobRecord& record) const {
    return record.generation == record_.generation &&
           record.birth == record_.birth;
  }
  // Takes in a record of this life, unless it is older than what is known.
  // Errors: as Create.
  absl::Status Update(const JobRecord& record) SKRULL_EXCLUDES(mutex_);

  // Refuses new writes with `status`, and waits for those under way: the job
  // may be about to end.
  void Suspend(const absl::Status& status) SKRULL_EXCLUDES(mutex_);
  // It lives on, unless it ended meanwhile.
  void Resume() SKRULL_EXCLUDES(mutex_);
  // For good. Does not wait.
  void End(const absl::Status& status) SKRULL_EXCLUDES(mutex_);

  const uint64_t id_;
  const JobRecord record_;
  const Job job_;
  mutable Mutex mutex_;
  CondVar written_;
  // Never null; its version never falls.
  std::shared_ptr<const CalibratedJob> calibrated_ SKRULL_GUARDED_BY(mutex_);
  int64_t writes_ SKRULL_GUARDED_BY(mutex_) = 0;
  // Not OK while suspended, or for good.
  absl::Status ended_ SKRULL_GUARDED_BY(mutex_);
  bool for_good_ SKRULL_GUARDED_BY(mutex_) = false;
};

// Thread-safe.
//
// Records arrive as answers to this daemon's own calls and as changes that the
// store tells of, in any order between the two. What stands for a name is what
// has the highest version: a record that is older than the job known by its
// name is dropped. So is an answer with a name that no job is known by, unless
// it is younger than all that was told: changes are told in order, so that this
// job was deleted since.
class JobDirectory {
 public:
  using Observer = std::function<void(const RegisteredJob&)>;

  // `on_end` is called after a job ended, so that whoever waits for it can be
  // told; with no lock held, on the thread that ended it. A job that is not
  // valid for this daemon is left out, with an error in the log. `store`,
  // `logger` and `metrics` must outlive the directory.
  JobDirectory(JobStore* store, const Logger* logger, Metrics* metrics,
               Observer on_end);
  ~JobDirectory();

  // Has the store tell of changes, and reads all its jobs: once, before
  // anything else. Blocks on storage. Errors: kStoreFailed.
  absl::Status LoadAll() SKRULL_EXCLUDES(change_, mutex_);

  // For the daemon itself, which may use every job. Errors: kJobNotFound.
  // O(log jobs).
  absl::StatusOr<std::shared_ptr<RegisteredJob>> Find(const std::string& name)
      SKRULL_EXCLUDES(mutex_);
  // The job that a call names, for its caller to look at or to use. Errors:
  // kJobNotFound, kPermissionDenied.
  absl::StatusOr<std::shared_ptr<RegisteredJob>> FindFor(
      const Caller& who, Access access, const std::string& name)
      SKRULL_EXCLUDES(mutex_);

  // Up to `limit` jobs with names after `after`, in byte order.
  std::vector<std::shared_ptr<RegisteredJob>> List(const std::string& after,
                                                   int64_t limit)
      SKRULL_EXCLUDES(mutex_);

  struct Page {
    std::vector<std::shared_ptr<RegisteredJob>> jobs;
    // What to pass as `after` for the next page; empty = this is the last.
    std::string next;
  };
  // Up to `limit` of the jobs with names after `after` that `who` may look at,
  // in byte order. It looks at kMaxLooks jobs at most, so that a page may be
  // short, or empty, and not the last. REQUIRES: limit >= 1.
  Page ListFor(const Caller& who, const std::string& after, int64_t limit)
      SKRULL_EXCLUDES(mutex_);
  // Some 50 ns each: a gRPC thread then holds the lock for 0.1 ms.
  static constexpr int64_t kMaxLooks = 2000;

  int64_t count() SKRULL_EXCLUDES(mutex_);

  // See JobStore. They block on storage: never on a gRPC thread. Delete's
  // errors also: kPermissionDenied, for a job that `who` may not use.
  absl::StatusOr<JobRecord> Create(const JobRecord& wanted,
                                   const CreateTerms& terms)
      SKRULL_EXCLUDES(change_, mutex_);
  absl::Status Delete(const std::string& name, int64_t generation,
                      const Caller& who = {}) SKRULL_EXCLUDES(change_, mutex_);
  // Puts the epoch in force for this life of the job. When it returns OK,
  // job->calibrated() is in the epoch of the record returned, or in a later
  // one. Errors also: why the job ended; INVALID_ARGUMENT, with nothing stored,
  // if its spec is not valid with the epoch's numbers.
  absl::StatusOr<JobRecord> Advance(const std::shared_ptr<RegisteredJob>& job,
                                    const v1::Calibration& next)
      SKRULL_EXCLUDES(mutex_);

 private:
  // Where a record comes from.
  enum class Source { kStore, kOwnCall };

  void OnChange(const JobChange& change) SKRULL_EXCLUDES(apply_, mutex_);
  void ApplyChange(const JobChange& change) SKRULL_EXCLUDES(apply_, mutex_);
  // Takes in a record that the store holds, or held. Errors: as
  // RegisteredJob::Create; no job of that name is known then.
  absl::Status Apply(const JobRecord& record, Source source)
      SKRULL_EXCLUDES(apply_, mutex_);
  // The job known by the name, or nullptr.
  std::shared_ptr<RegisteredJob> Known(const std::string& name)
      SKRULL_REQUIRES(mutex_);
  // Has `job` known by its name; with nullptr, none is.
  void Put(const std::string& name, std::shared_ptr<RegisteredJob> job)
      SKRULL_EXCLUDES(mutex_);
  // Ends the job, which is known by its name no more.
  void Remove(const std::shared_ptr<RegisteredJob>& job,
              const absl::Status& reason) SKRULL_EXCLUDES(mutex_);

  JobStore* const store_;
  const Logger* const logger_;
  Metrics* const metrics_;
  const Observer on_end_;

  // Held over this daemon's changes of which jobs there are; taken before the
  // others.
  Mutex change_;
  // Held while a record or a change is taken in; taken before mutex_.
  Mutex apply_;

  Mutex mutex_;
  uint64_t next_id_ SKRULL_GUARDED_BY(apply_) = 1;
  std::map<std::string, std::shared_ptr<RegisteredJob>> jobs_
      SKRULL_GUARDED_BY(mutex_);
  // Version of the latest change that was told of and taken in.
  int64_t told_ SKRULL_GUARDED_BY(mutex_) = 0;
  // Changes told of while LoadAll reads, to be taken in when it has.
  bool loading_ SKRULL_GUARDED_BY(mutex_) = false;
  std::vector<JobChange> told_while_loading_ SKRULL_GUARDED_BY(mutex_);
};

}  // namespace skrull

#endif  // SKRULL_SERVER_JOB_DIRECTORY_H_
