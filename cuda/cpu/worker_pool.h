// Threads that share the iterations of loops.
#ifndef SKRULL_CUDA_CPU_WORKER_POOL_H_
#define SKRULL_CUDA_CPU_WORKER_POOL_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace skrull::exec {

// Thread-safe: loops of several callers run at the same time; each caller works
// on its own, so a pool of one thread is a plain loop.
class WorkerPool {
 public:
  // `threads` >= 1 work on a loop, the caller's among them. Throws
  // std::system_error if a thread cannot start.
  explicit WorkerPool(int threads);
  ~WorkerPool();  // REQUIRES: no loop is running.

  // Calls body(0) .. body(count - 1), in any order and on any threads, and
  // returns when all are done. An exception of `body` ends the loop early and
  // is thrown here.
  void Run(int64_t count, const std::function<void(int64_t)>& body);

 private:
  struct Loop;
  static void Work(Loop* loop);
  void Serve();
  void Close();  // ends all threads

  std::mutex mutex_;
  std::condition_variable condition_;
  std::deque<std::shared_ptr<Loop>> loops_;  // protected by mutex_
  bool closed_ = false;                      // protected by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CPU_WORKER_POOL_H_
