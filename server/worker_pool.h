// Threads that run queued tasks, first come first served, with a bound on how
// many may wait.
//
// Thread-safe. Owns its threads; the destructor closes the pool and waits for
// tasks that run.
#ifndef SKRULL_SERVER_WORKER_POOL_H_
#define SKRULL_SERVER_WORKER_POOL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "skrull/server/clock.h"
#include "skrull/server/mutex.h"

namespace skrull {

class WorkerPool {
 public:
  // Called once: on a thread of the pool with OK, to do the work; or inside
  // Close with kDraining, to tell whoever waits that it will not be done.
  using Task = std::function<void(const absl::Status&)>;

  // `what` names the queue in messages. REQUIRES: threads >= 1, max_queued
  // >= 1. `clock` must outlive the pool.
  WorkerPool(std::string what, int64_t threads, int64_t max_queued,
             const Clock* clock);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Queues the task. Errors, with the task dropped uncalled:
  //  - RESOURCE_EXHAUSTED, kQueueFull, with a hint when to try again;
  //  - UNAVAILABLE, kDraining, after Close.
  absl::Status Submit(Task task) SKRULL_EXCLUDES(mutex_);

  // Calls the tasks that still wait with kDraining and takes no more. Does not
  // wait for those that run. Idempotent.
  void Close() SKRULL_EXCLUDES(mutex_);

 private:
  void RunTasks() SKRULL_EXCLUDES(mutex_);
  double RetrySeconds() const SKRULL_REQUIRES(mutex_);

  const std::string what_;
  const int64_t num_threads_;
  const int64_t max_queued_;
  const Clock* const clock_;

  Mutex mutex_;
  CondVar not_empty_;
  std::deque<Task> queue_ SKRULL_GUARDED_BY(mutex_);
  bool stopping_ SKRULL_GUARDED_BY(mutex_) = false;
  double mean_task_seconds_ SKRULL_GUARDED_BY(mutex_) = 0;  // of recent tasks

  std::vector<std::thread> threads_;  // touched by constructor and destructor
};

}  // namespace skrull

#endif  // SKRULL_SERVER_WORKER_POOL_H_
