// A mutex, its scoped lock and a condition variable that Clang's thread-safety
// analysis understands (-Wthread-safety), over the standard library's.
//
// The daemon locks with these alone: ThreadSanitizer follows std::mutex, while
// it reports false races on a prebuilt absl::Mutex.
//
// Example:
//   class Counter {
//    public:
//     void Add() {
//       MutexLock lock(&mutex_);
//       ++count_;
//     }
//
//    private:
//     Mutex mutex_;
//     int count_ SKRULL_GUARDED_BY(mutex_) = 0;
//   };
#ifndef SKRULL_SERVER_MUTEX_H_
#define SKRULL_SERVER_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define SKRULL_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SKRULL_THREAD_ANNOTATION(x)
#endif

// The variable is read and written only under the mutex.
#define SKRULL_GUARDED_BY(mutex) SKRULL_THREAD_ANNOTATION(guarded_by(mutex))
// What the pointer points to is read and written only under the mutex.
#define SKRULL_PT_GUARDED_BY(mutex) \
  SKRULL_THREAD_ANNOTATION(pt_guarded_by(mutex))
// The function is called with the mutex held, and returns with it held.
#define SKRULL_REQUIRES(...) \
  SKRULL_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
// The function takes the mutex itself: do not call it with the mutex held.
#define SKRULL_EXCLUDES(...) \
  SKRULL_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define SKRULL_ACQUIRE(...) \
  SKRULL_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define SKRULL_RELEASE(...) \
  SKRULL_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

namespace skrull {

class CondVar;

// Not recursive. Prefer MutexLock to calling Lock and Unlock.
class SKRULL_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() SKRULL_ACQUIRE() { mutex_.lock(); }
  void Unlock() SKRULL_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds the mutex for the scope it lives in. The mutex must outlive it.
class SKRULL_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) SKRULL_ACQUIRE(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() SKRULL_RELEASE() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Waits may wake without a signal: wait in a loop that tests the condition.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Releases the mutex, waits for a signal, and takes the mutex again.
  void Wait(Mutex* mutex) SKRULL_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();  // the caller still holds it
  }

  // As Wait, until `deadline` at the latest. False if the deadline has passed.
  bool WaitUntil(Mutex* mutex, std::chrono::steady_clock::time_point deadline)
      SKRULL_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const bool signalled =
        condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return signalled;
  }

  // Wakes one waiter, if there is one.
  void Signal() { condition_.notify_one(); }
  // Wakes all waiters.
  void SignalAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_MUTEX_H_
