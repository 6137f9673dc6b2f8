#include "skrull/server/alarm.h"

#include <algorithm>
#include <utility>

namespace skrull {

Alarm::Alarm(const Clock* clock, Ring ring)
    : clock_(clock), ring_(std::move(ring)) {
  thread_ = std::thread([this] { Run(); });
}

Alarm::~Alarm() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.Signal();
  }
  thread_.join();
}

void Alarm::Set(Time time) {
  MutexLock lock(&mutex_);
  if (time >= next_) return;
  next_ = time;
  changed_.Signal();
}

void Alarm::Run() {
  while (true) {
    Time now;
    {
      MutexLock lock(&mutex_);
      while (true) {
        if (stopping_) return;
        now = clock_->MonotonicNow();
        if (next_ <= now) break;
        if (next_ == kNever) {
          changed_.Wait(&mutex_);
        } else {
          changed_.WaitUntil(&mutex_, next_);
        }
      }
      next_ = kNever;  // what is set from here on counts
    }
    Set(ring_(now));
  }
}

}  // namespace skrull
