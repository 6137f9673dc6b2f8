// The registered jobs, in memory, in step with the store.
//
// One daemon owns its store, so what is in memory is what the store holds, and
// looking a job up costs no I/O. A RegisteredJob is one life of a job, up to
// its deletion or replacement: work under way for a job that ended, and whose
// name was taken again, can tell the two apart even if their generations are
// equal.
#ifndef SKRULL_SERVER_JOB_DIRECTORY_H_
#define SKRULL_SERVER_JOB_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/planner/job.h"
#include "skrull/server/job_store.h"
#include "skrull/server/log.h"
#include "skrull/server/metrics.h"
#include "skrull/server/mutex.h"

namespace skrull {

// Thread-safe.
class RegisteredJob {
 public:
  RegisteredJob(uint64_t id, JobRecord record, Job job)
      : id_(id), record_(std::move(record)), job_(std::move(job)) {}

  // Never used again in this process.
  uint64_t id() const { return id_; }
  const JobRecord& record() const { return record_; }
  const Job& job() const { return job_; }

  // Why the job ended; OK while it lives.
  absl::Status ended() const SKRULL_EXCLUDES(mutex_);

  // OK if `generation` is 0 or the job's. Errors: kGenerationMismatch.
  absl::Status CheckGeneration(int64_t generation) const;

  // Runs `write`, which stores something for the job, unless the job has ended;
  // it does not end before the write has returned. Errors: why the job ended;
  // those of `write`. Many may write at once.
  absl::Status Write(const std::function<absl::Status()>& write)
      SKRULL_EXCLUDES(mutex_);

 private:
  friend class JobDirectory;

  // Refuses new writes with `status`, and waits for those under way. With OK
  // the job lives on.
  void SetEnded(const absl::Status& status) SKRULL_EXCLUDES(mutex_);

  const uint64_t id_;
  const JobRecord record_;
  const Job job_;
  mutable Mutex mutex_;
  CondVar written_;
  int64_t writes_ SKRULL_GUARDED_BY(mutex_) = 0;
  absl::Status ended_ SKRULL_GUARDED_BY(mutex_);
};

// Thread-safe.
class JobDirectory {
 public:
  using Observer = std::function<void(const RegisteredJob&)>;

  // `on_end` is called after a job ended, so that whoever waits for it can be
  // told. `store` and `metrics` must outlive the directory.
  JobDirectory(JobStore* store, Metrics* metrics, Observer on_end);

  // Reads all jobs of the store: once, before anything else. A job whose spec
  // is no longer valid is left out, with an error in the log. Blocks on
  // storage. Errors: kStoreFailed.
  absl::Status LoadAll(const Logger& logger) SKRULL_EXCLUDES(change_, mutex_);

  // Errors: kJobNotFound. O(log jobs).
  absl::StatusOr<std::shared_ptr<RegisteredJob>> Find(const std::string& name)
      SKRULL_EXCLUDES(mutex_);

  // Up to `limit` jobs with names after `after`, in byte order.
  std::vector<std::shared_ptr<RegisteredJob>> List(const std::string& after,
                                                   int64_t limit)
      SKRULL_EXCLUDES(mutex_);

  int64_t count() SKRULL_EXCLUDES(mutex_);

  // See JobStore::Create and JobStore::Delete. `job` is `wanted.spec`'s. They
  // block on storage: never on a gRPC thread.
  absl::StatusOr<JobRecord> Create(const JobRecord& wanted, const Job& job,
                                   int64_t max_jobs)
      SKRULL_EXCLUDES(change_, mutex_);
  absl::Status Delete(const std::string& name, int64_t generation)
      SKRULL_EXCLUDES(change_, mutex_);

 private:
  void Insert(const JobRecord& record, const Job& job) SKRULL_REQUIRES(change_)
      SKRULL_EXCLUDES(mutex_);
  void Remove(const RegisteredJob& job) SKRULL_REQUIRES(change_)
      SKRULL_EXCLUDES(mutex_);

  JobStore* const store_;
  Metrics* const metrics_;
  const Observer on_end_;

  // Held over a change of the store together with the change of jobs_; taken
  // before mutex_.
  Mutex change_;
  uint64_t next_id_ SKRULL_GUARDED_BY(change_) = 1;

  Mutex mutex_;
  std::map<std::string, std::shared_ptr<RegisteredJob>> jobs_
      SKRULL_GUARDED_BY(mutex_);
};

}  // namespace skrull

#endif  // SKRULL_SERVER_JOB_DIRECTORY_H_
