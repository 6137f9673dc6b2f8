// Which life of a job stands in the etcd store: it names the keys of the job's
// plans and reports.
#ifndef SKRULL_SERVER_ETCD_ETCD_LIVES_H_
#define SKRULL_SERVER_ETCD_ETCD_LIVES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/server/etcd/etcd_client.h"
#include "skrull/server/etcd/etcd_keys.h"
#include "skrull/server/etcd/etcd_txn.h"
#include "skrull/server/mutex.h"

namespace skrull {

struct EtcdLife {
  int64_t generation = 0;
  int64_t birth = 0;
};

// Thread-safe. `client` and `keys` must outlive it. Remembers the lives it has
// read, so that a call costs one request; a life that is remembered and no
// longer stands is found out by that request.
class EtcdLives {
 public:
  EtcdLives(EtcdClient* client, const EtcdKeys* keys)
      : client_(client), keys_(keys) {}

  // What a Read found: answers from index 1 on are those of the caller's reads,
  // all of one revision, at which the life stood.
  struct Found {
    EtcdLife life;
    etcdserverpb::TxnResponse answers;
  };
  using AddReads = std::function<void(const EtcdLifeKeys&, EtcdTxn*)>;

  // Does the reads that `add_reads` adds, below the keys of the job's life.
  // Blocks. Errors: kJobNotFound, kGenerationMismatch, kStoreFailed.
  absl::StatusOr<Found> Read(const std::string& job, int64_t generation,
                             const AddReads& add_reads) SKRULL_EXCLUDES(mutex_);

  // The life of that generation that was read last, to be proved by what is
  // done with it; nullopt says nothing.
  std::optional<EtcdLife> Recall(const std::string& job, int64_t generation)
      SKRULL_EXCLUDES(mutex_);

 private:
  // Asks etcd, and remembers. Errors: kJobNotFound, kStoreFailed.
  absl::StatusOr<EtcdLife> Fetch(const std::string& job)
      SKRULL_EXCLUDES(mutex_);

  EtcdClient* const client_;
  const EtcdKeys* const keys_;

  Mutex mutex_;
  std::map<std::string, EtcdLife> lives_ SKRULL_GUARDED_BY(mutex_);  // by job
};

// True for kJobNotFound and kGenerationMismatch: such a life does not stand.
bool IsGone(const absl::Status& status);

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_ETCD_LIVES_H_
