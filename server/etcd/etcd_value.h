// Values of the etcd store <-> native records.
#ifndef SKRULL_SERVER_ETCD_ETCD_VALUE_H_
#define SKRULL_SERVER_ETCD_ETCD_VALUE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "etcd/rpc.pb.h"
#include "etcd/store_value.pb.h"
#include "skrull/server/etcd/etcd_client.h"
#include "skrull/server/job_store.h"

namespace skrull {

// Largest value that one key gets, bytes. etcd refuses requests above 1.5 MiB
// by default, and a request holds little beside one value.
inline constexpr int64_t kMaxEtcdValueBytes = int64_t{1} << 20;

// The message that a key's value holds; kStoreFailed, naming the key, for what
// no daemon wrote. `client` is for the error.
template <typename T>
absl::StatusOr<T> ParseValue(const EtcdClient& client,
                             const etcdserverpb::KeyValue& kv) {
  T value;
  if (value.ParseFromString(kv.value())) return value;
  return client.Failed(
      absl::StrCat("the value of key ", kv.key(), " does not parse"));
}

// The record of job `name` from its two keys, EtcdKeys::Record and ::Epoch.
// Errors: as ParseValue.
absl::StatusOr<JobRecord> JobRecordOf(const EtcdClient& client,
                                      const std::string& name,
                                      const etcdserverpb::KeyValue& record,
                                      const etcdserverpb::KeyValue& epoch);

// The value of EtcdKeys::Record.
std::string EncodeJob(const JobRecord& record);

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_ETCD_VALUE_H_
