// Where registered jobs are kept.
#ifndef SKRULL_SERVER_JOB_STORE_H_
#define SKRULL_SERVER_JOB_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/v1/job.pb.h"

namespace skrull {

// One generation of a registered job.
struct JobRecord {
  std::string name;
  v1::JobSpec spec;
  int64_t generation = 0;  // from 1
  int64_t calibration_epoch = 0;
  int64_t create_time_micros = 0;  // since the Unix epoch
};

// Thread-safe. Calls may block on storage: never call on a gRPC thread. What a
// call acknowledged is durable to the degree the backend promises. Any call may
// fail with kStoreFailed, having changed nothing.
class JobStore {
 public:
  virtual ~JobStore() = default;

  // Registers a job, in one transaction, and returns the record that stands.
  //  - no such job: stored as generation max(1, wanted.generation);
  //  - same spec (CanonicalBytes) and wanted.generation 0 or the job's: the
  //    record that stands, unchanged;
  //  - wanted.generation above the job's: replaces it and forgets its plans and
  //    reports;
  //  - another spec, and wanted.generation 0 or the job's: kJobExists;
  //  - wanted.generation below the job's: kGenerationMismatch;
  //  - a new name while `max_jobs` exist: kLimitExceeded.
  // Only name, spec, generation and create_time_micros of `wanted` are read.
  // REQUIRES: the spec is valid (JobFromProto).
  virtual absl::StatusOr<JobRecord> Create(const JobRecord& wanted,
                                           int64_t max_jobs) = 0;

  // Errors: kJobNotFound.
  virtual absl::StatusOr<JobRecord> Get(const std::string& name) = 0;

  // Up to `limit` jobs with names after `after`, in byte order.
  virtual absl::StatusOr<std::vector<JobRecord>> List(const std::string& after,
                                                      int64_t limit) = 0;

  // Forgets the job, its plans and its reports. `generation` 0 = any. Errors:
  // kJobNotFound, kGenerationMismatch.
  virtual absl::Status Delete(const std::string& name, int64_t generation) = 0;

  virtual absl::StatusOr<int64_t> Count() = 0;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_JOB_STORE_H_
