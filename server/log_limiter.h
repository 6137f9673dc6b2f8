// Bounds how many log lines of one kind are written.
#ifndef SKRULL_SERVER_LOG_LIMITER_H_
#define SKRULL_SERVER_LOG_LIMITER_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "skrull/server/mutex.h"

namespace skrull {

// Lets `lines_per_second` lines pass in each second that begins with a line.
// Thread-safe.
class LogLimiter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit LogLimiter(int64_t lines_per_second)
      : lines_per_second_(lines_per_second) {}

  // How many lines were suppressed since the last one that passed, if the line
  // of `now` may pass; else nullopt, and it counts as suppressed.
  std::optional<int64_t> Pass(Time now) SKRULL_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    if (!second_ || now - *second_ >= std::chrono::seconds(1)) {
      second_ = now;
      passed_ = 0;
    }
    if (passed_ >= lines_per_second_) {
      ++suppressed_;
      return std::nullopt;
    }
    ++passed_;
    const int64_t suppressed = suppressed_;
    suppressed_ = 0;
    return suppressed;
  }

 private:
  const int64_t lines_per_second_;
  Mutex mutex_;
  std::optional<Time> second_ SKRULL_GUARDED_BY(mutex_);  // its begin
  int64_t passed_ SKRULL_GUARDED_BY(mutex_) = 0;          // in that second
  int64_t suppressed_ SKRULL_GUARDED_BY(mutex_) = 0;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_LOG_LIMITER_H_
