#include "skrull/cuda/cpu/worker_pool.h"

#include <algorithm>
#include <atomic>

namespace skrull::exec {

struct WorkerPool::Loop {
  int64_t count = 0;
  const std::function<void(int64_t)>* body = nullptr;
  std::atomic<int64_t> next = 0;

  std::mutex mutex;
  std::condition_variable condition;
  int working = 0;               // threads in Work; protected by mutex
  std::exception_ptr exception;  // the first; protected by mutex
};

// Takes iterations until there are none. `body` is only used while iterations
// are left, so a late thread touches nothing of the caller's.
void WorkerPool::Work(Loop* loop) {
  {
    const std::lock_guard lock(loop->mutex);
    ++loop->working;
  }
  for (int64_t i = loop->next++; i < loop->count; i = loop->next++) {
    try {
      (*loop->body)(i);
    } catch (...) {
      const std::lock_guard lock(loop->mutex);
      if (!loop->exception) loop->exception = std::current_exception();
      loop->next = loop->count;
    }
  }
  const std::lock_guard lock(loop->mutex);
  if (--loop->working == 0) loop->condition.notify_all();
}

WorkerPool::WorkerPool(int threads) {
  try {
    for (int i = 1; i < threads; ++i) {
      threads_.emplace_back([this] { Serve(); });
    }
  } catch (...) {
    Close();
    throw;
  }
}

WorkerPool::~WorkerPool() { Close(); }

void WorkerPool::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  condition_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::Run(int64_t count, const std::function<void(int64_t)>& body) {
  if (threads_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  const auto loop = std::make_shared<Loop>();
  loop->count = count;
  loop->body = &body;
  {
    const std::lock_guard lock(mutex_);
    loops_.push_back(loop);
  }
  condition_.notify_all();
  Work(loop.get());
  {
    const std::lock_guard lock(mutex_);
    std::erase(loops_, loop);
  }
  std::unique_lock lock(loop->mutex);
  loop->condition.wait(lock, [&] { return loop->working == 0; });
  if (loop->exception) std::rethrow_exception(loop->exception);
}

void WorkerPool::Serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    condition_.wait(lock, [&] { return closed_ || !loops_.empty(); });
    if (closed_) return;
    const std::shared_ptr<Loop> loop = loops_.front();
    lock.unlock();
    Work(loop.get());
    lock.lock();
    // It has no iterations left to take; its caller may have removed it.
    std::erase(loops_, loop);
  }
}

}  // namespace skrull::exec
