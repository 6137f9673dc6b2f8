// The attempts of a change that is decided on what was read and stored only if
// nothing of that has changed since.
#ifndef SKRULL_SERVER_ETCD_ETCD_RACE_H_
#define SKRULL_SERVER_ETCD_ETCD_RACE_H_

#include <chrono>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "skrull/server/etcd/etcd_client.h"

namespace skrull {

// Example:
//   EtcdRace race(client);
//   while (race.Again()) {
//     ...                          // read, decide, and store with comparisons
//     if (stored) return record;
//   }
//   return race.Lost("job run");
//
// Not thread-safe.
class EtcdRace {
 public:
  // `client` must outlive the object.
  explicit EtcdRace(const EtcdClient* client);

  // True if there is time for an attempt: the client's timeout is that of all
  // attempts together. From the second on waits a little, longer each time, so
  // that those who race do not meet again.
  bool Again();

  // kStoreFailed: others changed `what` all the time.
  absl::Status Lost(const std::string& what) const;

 private:
  const EtcdClient* const client_;
  const std::chrono::steady_clock::time_point deadline_;
  std::chrono::microseconds wait_{0};
  std::minstd_rand random_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_ETCD_RACE_H_
