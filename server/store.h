// Opens the store a daemon was configured with.
#ifndef SKRULL_SERVER_STORE_H_
#define SKRULL_SERVER_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "skrull/server/job_store.h"
#include "skrull/server/plan_store.h"

namespace skrull {

// Jobs and plans in one backend, so that replacing or deleting a job and
// forgetting its plans is one transaction.
class Store : public JobStore, public PlanStore {};

// What some stores need beside an address; plain data.
struct StoreOptions {
  // Longest call of etcd, all attempts together; > 0.
  double etcd_timeout_seconds = 5;
  // PEM files. With a CA, connections to etcd are encrypted, and its members
  // must have a certificate from it; certificate and key are what this daemon
  // shows them.
  std::string etcd_ca_file = {};
  std::string etcd_cert_file = {};
  std::string etcd_key_file = {};
};

// "memory": nothing survives the process. "sqlite:PATH": a database file,
// created when missing; a commit is on disk before it is answered.
// "etcd://HOST:PORT[,HOST:PORT...]/PREFIX": keys of an etcd cluster, which
// several daemons may share. Errors: INVALID_ARGUMENT for another form;
// kStoreFailed naming the path or the members when they cannot be opened or
// reached, are corrupt, or were written by a newer version.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(
    const std::string& uri, const StoreOptions& options = {});

}  // namespace skrull

#endif  // SKRULL_SERVER_STORE_H_
