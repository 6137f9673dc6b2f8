#include "skrull/cuda/in_process/meeting.h"

#include <algorithm>
#include <utility>

namespace skrull::exec {

Meeting::Meeting(int32_t first_rank, int32_t size,
                 std::chrono::nanoseconds time_limit, FirstFailure* failure)
    : first_rank_(first_rank),
      size_(size),
      time_limit_(time_limit),
      failure_(failure),
      contributions_(static_cast<size_t>(size)),
      arrived_(static_cast<size_t>(size)) {}

Status Meeting::Enter(int32_t rank, Contribution contribution) {
  std::unique_lock lock(mutex_);
  SKRULL_EXEC_RETURN_IF_ERROR(failure_->Get());
  contributions_[static_cast<size_t>(rank)] = std::move(contribution);
  const int64_t phase = phase_;
  if (arrived_count_ == size_ - 1) looking_ = size_;
  const Status status = Await(rank, &lock);
  // It failed after all had come: the others wait for this rank to look away.
  if (!status.ok() && phase_ != phase) {
    --looking_;
    condition_.notify_all();
  }
  return status;
}

Status Meeting::Leave(int32_t rank) {
  std::unique_lock lock(mutex_);
  --looking_;
  const Status status = Await(rank, &lock);
  if (status.ok()) return status;
  // Nobody starts to look after a failure, and those who look end soon.
  condition_.notify_all();
  condition_.wait(lock, [&] { return looking_ == 0; });
  return status;
}

Status Meeting::Await(int32_t rank, std::unique_lock<std::mutex>* lock) {
  const auto deadline = std::chrono::steady_clock::now() + time_limit_;
  const int64_t phase = phase_;
  arrived_[static_cast<size_t>(rank)] = true;
  if (++arrived_count_ == size_) {
    arrived_count_ = 0;
    std::fill(arrived_.begin(), arrived_.end(), false);
    ++phase_;
    condition_.notify_all();
    return failure_->Get();
  }
  while (phase_ == phase) {
    SKRULL_EXEC_RETURN_IF_ERROR(failure_->Get());
    if (condition_.wait_until(*lock, deadline) == std::cv_status::no_timeout ||
        phase_ != phase) {
      continue;
    }
    std::string missing;
    for (int32_t r = 0; r < size_; ++r) {
      if (!arrived_[static_cast<size_t>(r)]) {
        missing +=
            (missing.empty() ? "" : ", ") + std::to_string(first_rank_ + r);
      }
    }
    const auto seconds =
        std::chrono::duration_cast<std::chrono::milliseconds>(time_limit_);
    failure_->Set({StatusCode::kDeadlineExceeded,
                   "rank " + std::to_string(first_rank_ + rank) + " waited " +
                       std::to_string(seconds.count()) +
                       " ms in a collective for rank " + missing});
  }
  return failure_->Get();
}

void Meeting::LookAway() {
  const std::lock_guard lock(mutex_);
  --looking_;
  condition_.notify_all();
}

void Meeting::Wake() {
  const std::lock_guard lock(mutex_);
  condition_.notify_all();
}

}  // namespace skrull::exec
