// One thread that calls a function when the earliest of its owner's deadlines
// has come.
#ifndef SKRULL_SERVER_ALARM_H_
#define SKRULL_SERVER_ALARM_H_

#include <chrono>
#include <functional>
#include <thread>

#include "skrull/server/clock.h"
#include "skrull/server/mutex.h"

namespace skrull {

// Thread-safe.
class Alarm {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr Time kNever = Time::max();

  // Handles what has come due by `now` and returns when the next deadline is,
  // or kNever. Called on the alarm's thread, which holds no lock.
  using Ring = std::function<Time(Time now)>;

  // Starts the thread; `clock` must outlive the object.
  Alarm(const Clock* clock, Ring ring);
  // Waits for a call of `ring` that runs.
  ~Alarm();

  // `ring` is called at `time` or before. Does not block: its callers may hold
  // the lock that `ring` takes.
  void Set(Time time) SKRULL_EXCLUDES(mutex_);

 private:
  void Run() SKRULL_EXCLUDES(mutex_);

  const Clock* const clock_;
  const Ring ring_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ SKRULL_GUARDED_BY(mutex_) = false;
  Time next_ SKRULL_GUARDED_BY(mutex_) = kNever;

  std::thread thread_;  // last: it uses the rest
};

}  // namespace skrull

#endif  // SKRULL_SERVER_ALARM_H_
