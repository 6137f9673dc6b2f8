#include "skrull/server/worker_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "skrull/planner/error.h"

namespace skrull {

WorkerPool::WorkerPool(std::string what, int64_t threads, int64_t max_queued,
                       const Clock* clock)
    : what_(std::move(what)),
      num_threads_(threads),
      max_queued_(max_queued),
      clock_(clock) {
  threads_.reserve(static_cast<size_t>(threads));
  for (int64_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { RunTasks(); });
  }
}

WorkerPool::~WorkerPool() {
  Close();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status WorkerPool::Submit(Task task) {
  MutexLock lock(&mutex_);
  if (stopping_) {
    return MakeError({.reason = ErrorReason::kDraining},
                     "the daemon is shutting down");
  }
  if (static_cast<int64_t>(queue_.size()) >= max_queued_) {
    return MakeError({.reason = ErrorReason::kQueueFull,
                      .limit = max_queued_,
                      .retry_after_seconds = RetrySeconds()},
                     "the " + what_ +
                         " queue is full: " + std::to_string(max_queued_) +
                         " requests wait already");
  }
  queue_.push_back(std::move(task));
  not_empty_.Signal();
  return absl::OkStatus();
}

void WorkerPool::Close() {
  std::deque<Task> left;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    left.swap(queue_);
    not_empty_.SignalAll();
  }
  const absl::Status draining = MakeError({.reason = ErrorReason::kDraining},
                                          "the daemon is shutting down");
  for (Task& task : left) task(draining);
}

void WorkerPool::RunTasks() {
  while (true) {
    Task task;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopping_) not_empty_.Wait(&mutex_);
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    const auto start = clock_->MonotonicNow();
    task(absl::OkStatus());
    task = nullptr;  // what it holds goes before the next wait
    const std::chrono::duration<double> spent = clock_->MonotonicNow() - start;
    MutexLock lock(&mutex_);
    mean_task_seconds_ += 0.1 * (spent.count() - mean_task_seconds_);
  }
}

double WorkerPool::RetrySeconds() const {
  // When half of what waits now is done.
  const double seconds = 0.5 * static_cast<double>(queue_.size()) *
                         mean_task_seconds_ / static_cast<double>(num_threads_);
  return std::clamp(seconds, 0.01, 10.0);
}

}  // namespace skrull
