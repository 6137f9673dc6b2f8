// JobStore's part of the etcd store: see job_store.h for what each call does.
//
// A change of a job is one transaction that compares the revisions of what it
// was decided on; a lost race reads and decides again.
#ifndef SKRULL_SERVER_ETCD_ETCD_JOBS_H_
#define SKRULL_SERVER_ETCD_ETCD_JOBS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/server/etcd/etcd_client.h"
#include "skrull/server/etcd/etcd_keys.h"
#include "skrull/server/etcd/etcd_txn.h"
#include "skrull/server/job_life.h"
#include "skrull/server/job_store.h"
#include "skrull/v1/calibration.pb.h"

namespace skrull {

// Thread-safe: it has no state. `client` and `keys` must outlive it. Blocks.
class EtcdJobs {
 public:
  EtcdJobs(EtcdClient* client, const EtcdKeys* keys)
      : client_(client), keys_(keys) {}

  absl::StatusOr<JobRecord> Create(const JobRecord& wanted,
                                   const CreateTerms& terms);
  absl::StatusOr<JobRecord> Get(const std::string& name);
  absl::StatusOr<std::vector<JobRecord>> List(const std::string& after,
                                              int64_t limit);
  absl::Status Delete(const JobLife& life);
  absl::StatusOr<int64_t> Count();
  absl::StatusOr<JobRecord> Advance(const JobLife& life,
                                    const v1::Calibration& next);
  absl::StatusOr<std::vector<v1::Calibration>> Calibrations(
      const std::string& name, int64_t generation);

  // Deletes what ended lives have left, up to a bound, after which the rest
  // waits for the next call. Errors: kStoreFailed, which loses nothing: nobody
  // can reach what is left.
  absl::Status CollectTrash();

 private:
  // Jobs that are counted under a key, and its revision; 0 = no such key.
  struct Counted {
    int64_t jobs = 0;
    int64_t revision = 0;
  };
  // A job as it stands, and the counts that it is or would be part of.
  struct Standing {
    std::optional<JobRecord> job;
    int64_t epoch_revision = 0;
    Counted all;
    Counted of_owner;  // of the owner that Read was given
  };

  absl::StatusOr<Standing> Read(const std::string& name,
                                const std::string& owner);
  absl::StatusOr<Counted> CountOf(const etcdserverpb::KeyValue* kv) const;
  absl::StatusOr<Counted> ReadOwner(const std::string& owner);
  // Changes a count by `by`, if nothing else did since it was read.
  static void Add(const std::string& key, const Counted& counted, int64_t by,
                  EtcdTxn* txn);
  // Leaves the data of a life to CollectTrash.
  void EndLife(const JobRecord& job, EtcdTxn* txn) const;
  // Stores the record in place of what stands and sets its birth and version.
  // False if what stands is no longer so.
  absl::StatusOr<bool> Store(const Standing& standing, JobRecord* record);
  absl::StatusOr<bool> Remove(const Standing& standing);

  EtcdClient* const client_;
  const EtcdKeys* const keys_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_ETCD_JOBS_H_
