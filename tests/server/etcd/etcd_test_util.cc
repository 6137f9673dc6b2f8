#include "skrull/tests/server/etcd/etcd_test_util.h"

#include <future>
#include <map>
#include <stdexcept>
#include <utility>

#include "skrull/server/etcd/etcd_txn.h"
#include "skrull/server/etcd/etcd_uri.h"

namespace skrull::testing {

Etcd& SharedEtcd() {
  static Etcd etcd;
  return etcd;
}

std::string FreshEtcdUri() {
  static int count = 0;
  return SharedEtcd().uri("test-" + std::to_string(++count));
}

int64_t CountKeys(const std::string& uri, const std::string& below) {
  const EtcdLocation location = ParseEtcdUri(uri).value();
  EtcdClient client({.endpoints = location.endpoints,
                     .credentials = grpc::InsecureChannelCredentials()});
  etcdserverpb::RangeRequest range = GetPrefix(location.prefix + below, 1);
  const auto found = client.Range(range);
  if (!found.ok()) throw std::runtime_error(found.status().ToString());
  return found->count();
}

void Changes::Watch(Store* store) {
  store->Watch([this](const JobChange& change) {
    MutexLock lock(&mutex_);
    changes_.push_back(change);
  });
}

std::vector<JobChange> Changes::All() {
  MutexLock lock(&mutex_);
  return changes_;
}

std::vector<std::string> Changes::Last() {
  std::map<std::string, std::string> last;
  for (const JobChange& change : All()) {
    last[change.name] =
        change.name + " " +
        (change.record ? std::to_string(change.record->generation) : "gone");
  }
  std::vector<std::string> texts;
  for (const auto& [name, text] : last) texts.push_back(text);
  return texts;
}

absl::Status BecomeCurrent(Store* store) {
  std::promise<absl::Status> promise;
  store->WhenCurrent(
      [&](const absl::Status& status) { promise.set_value(status); });
  return promise.get_future().get();
}

}  // namespace skrull::testing
