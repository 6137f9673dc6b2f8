// The etcd that the tests of one binary share, and stores in it.
#ifndef SKRULL_TESTS_SERVER_ETCD_ETCD_TEST_UTIL_H_
#define SKRULL_TESTS_SERVER_ETCD_ETCD_TEST_UTIL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "skrull/server/etcd/etcd_client.h"
#include "skrull/server/mutex.h"
#include "skrull/server/store.h"
#include "skrull/tests/support/etcd.h"

namespace skrull::testing {

// Started by the first call, and stopped with the process.
Etcd& SharedEtcd();

// The address of a store in SharedEtcd() that no other call returns.
std::string FreshEtcdUri();

// How many keys there are under `uri`'s prefix and `below` it.
int64_t CountKeys(const std::string& uri, const std::string& below = "");

// What an observer was told. Thread-safe.
class Changes {
 public:
  // Has `store` tell this object, which must outlive it.
  void Watch(Store* store);

  std::vector<JobChange> All();
  // The last change of each job, "NAME generation", or "NAME gone", sorted.
  std::vector<std::string> Last();

 private:
  Mutex mutex_;
  std::vector<JobChange> changes_ SKRULL_GUARDED_BY(mutex_);
};

// Waits for WhenCurrent.
absl::Status BecomeCurrent(Store* store);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SERVER_ETCD_ETCD_TEST_UTIL_H_
