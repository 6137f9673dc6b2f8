#include "skrull/server/etcd/freshness_door.h"

#include <utility>

#include "skrull/planner/error.h"

namespace skrull {

FreshnessDoor::FreshnessDoor(std::function<absl::Status()> check)
    : check_(std::move(check)) {
  for (std::thread& thread : threads_) {
    thread = std::thread([this] { Run(); });
  }
}

FreshnessDoor::~FreshnessDoor() {
  std::vector<Done> late;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    late.swap(waiting_);
    not_empty_.SignalAll();
  }
  for (const Done& done : late) {
    done(MakeError({.reason = ErrorReason::kDraining},
                   "the daemon is shutting down"));
  }
  for (std::thread& thread : threads_) thread.join();
}

void FreshnessDoor::Enter(Done done) {
  MutexLock lock(&mutex_);
  waiting_.push_back(std::move(done));
  not_empty_.Signal();
}

void FreshnessDoor::Run() {
  while (true) {
    std::vector<Done> through;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && waiting_.empty()) not_empty_.Wait(&mutex_);
      if (stopping_) return;
      through.swap(waiting_);
    }
    const absl::Status status = check_();
    for (const Done& done : through) done(status);
  }
}

}  // namespace skrull
