// Calls that may go on once a check has passed that began after they came. Many
// calls share one check.
#ifndef SKRULL_SERVER_ETCD_FRESHNESS_DOOR_H_
#define SKRULL_SERVER_ETCD_FRESHNESS_DOOR_H_

#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "skrull/server/mutex.h"

namespace skrull {

// Thread-safe. Owns its threads; the destructor waits for checks that run and
// answers the calls that came too late for them with kDraining.
class FreshnessDoor {
 public:
  using Done = std::function<void(const absl::Status&)>;

  // `check` may block and is called on two threads, so that the calls that come
  // while one check runs need not wait for its end before their own begins.
  explicit FreshnessDoor(std::function<absl::Status()> check);
  ~FreshnessDoor();
  FreshnessDoor(const FreshnessDoor&) = delete;
  FreshnessDoor& operator=(const FreshnessDoor&) = delete;

  // Has `done` called once, on a thread of the door, with the result of a check
  // that begins after this call. Never blocks.
  void Enter(Done done) SKRULL_EXCLUDES(mutex_);

 private:
  void Run() SKRULL_EXCLUDES(mutex_);

  const std::function<absl::Status()> check_;

  Mutex mutex_;
  CondVar not_empty_;
  bool stopping_ SKRULL_GUARDED_BY(mutex_) = false;
  std::vector<Done> waiting_ SKRULL_GUARDED_BY(mutex_);

  std::thread threads_[2];  // last: they use the rest
};

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_FRESHNESS_DOOR_H_
