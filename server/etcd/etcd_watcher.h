// Follows the jobs of an etcd store and tells an observer of their changes.
//
// It lists all jobs once, and then reads a watch from the next revision on. A
// watch that breaks is taken up again where it was, at another member; only
// when etcd has compacted that revision away are all jobs listed again, and
// what differs is told.
#ifndef SKRULL_SERVER_ETCD_ETCD_WATCHER_H_
#define SKRULL_SERVER_ETCD_ETCD_WATCHER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "skrull/server/etcd/etcd_client.h"
#include "skrull/server/etcd/etcd_keys.h"
#include "skrull/server/job_store.h"
#include "skrull/server/mutex.h"

namespace skrull {

// Thread-safe.
class EtcdWatcher {
 public:
  // Starts a thread, on which `observer` is called. `client` and `keys` must
  // outlive the object.
  EtcdWatcher(EtcdClient* client, const EtcdKeys* keys,
              JobStore::Observer observer);
  // Stops the thread, after a call of the observer that runs.
  ~EtcdWatcher();

  // Waits until the observer has been told of all changes up to `revision`,
  // which is that of a change of a job. Errors: kStoreFailed at `deadline`,
  // with what keeps the watch from going on.
  absl::Status WaitUntil(int64_t revision,
                         std::chrono::steady_clock::time_point deadline)
      SKRULL_EXCLUDES(mutex_);

 private:
  // The keys of one job, as far as they exist.
  struct Keys {
    std::optional<etcdserverpb::KeyValue> record;
    std::optional<etcdserverpb::KeyValue> epoch;
  };

  void Run() SKRULL_EXCLUDES(mutex_);
  // Lists all jobs and tells what differs from what is known.
  absl::Status ListAll() SKRULL_EXCLUDES(mutex_);
  // Reads a watch until it ends. OK only if all jobs must be listed anew.
  absl::Status Follow() SKRULL_EXCLUDES(mutex_);
  // Takes in the changes of one answer.
  absl::Status Apply(const etcdserverpb::WatchResponse& response)
      SKRULL_EXCLUDES(mutex_);
  // Tells of the jobs that changed at `revision`.
  absl::Status Tell(const std::set<std::string>& names, int64_t revision)
      SKRULL_EXCLUDES(mutex_);
  // Where the key is kept in `jobs`; nullptr for a key that is of no job.
  std::optional<etcdserverpb::KeyValue>* Slot(const std::string& key,
                                              std::map<std::string, Keys>* jobs,
                                              std::string* name) const;
  void SetReached(int64_t revision) SKRULL_EXCLUDES(mutex_);
  // Waits before the next attempt; false when stopping.
  bool Pause(const absl::Status& problem) SKRULL_EXCLUDES(mutex_);

  EtcdClient* const client_;
  const EtcdKeys* const keys_;
  const JobStore::Observer observer_;

  std::map<std::string, Keys> jobs_;  // of the thread alone

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ SKRULL_GUARDED_BY(mutex_) = false;
  // The observer was told of all changes up to here; -1 before the first list.
  int64_t reached_ SKRULL_GUARDED_BY(mutex_) = -1;
  // The watch that is read, to be cancelled; nullptr between two.
  EtcdWatchStream* stream_ SKRULL_GUARDED_BY(mutex_) = nullptr;
  absl::Status problem_ SKRULL_GUARDED_BY(mutex_);  // of the last attempt

  std::thread thread_;  // last: it uses the rest
};

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_ETCD_WATCHER_H_
