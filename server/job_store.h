// Where registered jobs are kept, with the calibration epochs of each.
#ifndef SKRULL_SERVER_JOB_STORE_H_
#define SKRULL_SERVER_JOB_STORE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/server/job_life.h"
#include "skrull/v1/calibration.pb.h"
#include "skrull/v1/job.pb.h"

namespace skrull {

// Epochs of one job that a store keeps, the one in force included.
inline constexpr int64_t kKeptEpochs = 256;

// One life of a registered job: from its creation to its deletion or
// replacement.
struct JobRecord {
  std::string name;
  v1::JobSpec spec;        // as registered
  int64_t generation = 0;  // from 1
  // Who created it; empty where callers are not told apart.
  std::string owner = {};
  // The epoch in force; RegisteredCalibration() (store_rules.h) when new.
  v1::Calibration calibration = {};
  int64_t create_time_micros = 0;  // since the Unix epoch
  // A version is above 0 and above that of every change of any job of the store
  // that took place before it; commits and reports are no changes. `birth` is
  // the version of the change that began this life, so that (name, generation,
  // birth) tells lives apart; `version` is that of the latest change.
  int64_t birth = 0;
  int64_t version = 0;
};

inline JobLife LifeOf(const JobRecord& record) {
  return {record.name, record.generation, record.birth};
}

// What a JobStore::Create may do.
struct CreateTerms {
  // Most jobs in the store.
  int64_t max_jobs = std::numeric_limits<int64_t>::max();
  // Most jobs of the wanted owner.
  int64_t max_owner_jobs = std::numeric_limits<int64_t>::max();
  // Whether the job of another owner may be joined or replaced.
  bool any_owner = true;
};

// A change of a job, as an observer is told.
struct JobChange {
  std::string name;
  std::optional<JobRecord> record;  // nullopt: it was deleted
  int64_t version = 0;              // record->version, or that of the deletion
};

// Thread-safe. Calls may block on storage: never call on a gRPC thread. What a
// call acknowledged is durable to the degree the backend promises. Any call may
// fail with kStoreFailed, having changed nothing.
class JobStore {
 public:
  using Observer = std::function<void(const JobChange&)>;

  virtual ~JobStore() = default;

  // Registers a job, in one transaction, and returns the record that stands.
  //  - no such job: stored as generation max(1, wanted.generation);
  //  - same spec (CanonicalBytes) and wanted.generation 0 or the job's: the
  //    record that stands, unchanged, whoever its owner is;
  //  - wanted.generation above the job's: replaces it, its owner included, and
  //    forgets its epochs, plans and reports;
  //  - another spec, and wanted.generation 0 or the job's: kJobExists;
  //  - wanted.generation below the job's: kGenerationMismatch;
  //  - the job of another owner, without terms.any_owner: kPermissionDenied;
  //  - a new name while terms.max_jobs exist: kLimitExceeded;
  //  - a job that would be the owner's next while it has
  //    terms.max_owner_jobs: kQuotaExceeded.
  // Only name, spec, generation, owner and create_time_micros of `wanted` are
  // read. REQUIRES: the spec is valid (JobFromProto).
  virtual absl::StatusOr<JobRecord> Create(const JobRecord& wanted,
                                           const CreateTerms& terms) = 0;

  // Errors: kJobNotFound.
  virtual absl::StatusOr<JobRecord> Get(const std::string& name) = 0;

  // Up to `limit` jobs with names after `after`, in byte order.
  virtual absl::StatusOr<std::vector<JobRecord>> List(const std::string& after,
                                                      int64_t limit) = 0;

  // Forgets the job, its epochs, its plans and its reports, if the life named
  // stands; life.generation 0 = any. Errors: kJobNotFound, kGenerationMismatch.
  virtual absl::Status Delete(const JobLife& life) = 0;

  virtual absl::StatusOr<int64_t> Count() = 0;

  // Puts `next` in force if its epoch is one more than that of the epoch in
  // force, and returns the record that stands: with another epoch than next's
  // if it was not. Errors: kJobNotFound, kGenerationMismatch (the life has
  // ended: nothing is changed).
  virtual absl::StatusOr<JobRecord> Advance(const JobLife& life,
                                            const v1::Calibration& next) = 0;

  // The job's epochs, oldest first, the latest kKeptEpochs of them. Errors:
  // kJobNotFound, kGenerationMismatch.
  virtual absl::StatusOr<std::vector<v1::Calibration>> Calibrations(
      const std::string& name, int64_t generation) = 0;

  // Has `observer` told of every change of a job, this store's own included, in
  // order of their versions, one at a time, on a thread of the store's; it must
  // neither wait nor call the store. A store that one process owns, as by
  // default, tells nothing: its caller knows all changes. An empty observer
  // ends it, once the call under way has returned. REQUIRES: called with an
  // observer at most once, before any other call.
  virtual void Watch(Observer observer);

  // Calls `done` once the observer has been told of all changes that were
  // committed before this call; by default at once, on this thread. Never
  // blocks. Many calls cost little more than one. `done` gets kStoreFailed when
  // that could not be established within a bound of the backend's.
  virtual void WhenCurrent(std::function<void(const absl::Status&)> done);
};

}  // namespace skrull

#endif  // SKRULL_SERVER_JOB_STORE_H_
