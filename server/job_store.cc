#include "skrull/server/job_store.h"

namespace skrull {

void JobStore::Watch(Observer /*observer*/) {}

void JobStore::WhenCurrent(std::function<void(const absl::Status&)> done) {
  done(absl::OkStatus());
}

}  // namespace skrull
