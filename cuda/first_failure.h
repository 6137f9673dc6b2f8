// The first failure of something that can fail at many places: sticky.
#ifndef SKRULL_CUDA_FIRST_FAILURE_H_
#define SKRULL_CUDA_FIRST_FAILURE_H_

#include <atomic>
#include <mutex>

#include "skrull/cuda/status.h"

namespace skrull::exec {

// Thread-safe. Reading OK takes no lock.
class FirstFailure {
 public:
  // Keeps `status` unless it is OK or there is one already; true if it did.
  bool Set(const Status& status) {
    if (status.ok()) return false;
    const std::lock_guard lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) return false;
    status_ = status;
    failed_.store(true, std::memory_order_release);
    return true;
  }

  Status Get() const {
    if (!failed_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_ = false;
  Status status_;  // protected by mutex_
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_FIRST_FAILURE_H_
