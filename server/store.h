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

// "memory": nothing survives the process. "sqlite:PATH": a database file,
// created when missing; a commit is on disk before it is answered. Errors:
// INVALID_ARGUMENT for another form; kStoreFailed naming the path when the file
// cannot be opened, is corrupt, or was written by a newer version.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& uri);

}  // namespace skrull

#endif  // SKRULL_SERVER_STORE_H_
