// A clock that tests move.
#ifndef SKRULL_TESTS_SERVER_OBSERVE_MANUAL_CLOCK_H_
#define SKRULL_TESTS_SERVER_OBSERVE_MANUAL_CLOCK_H_

#include <chrono>

#include "skrull/server/clock.h"

namespace skrull::testing {

// Not thread-safe.
class ManualClock : public Clock {
 public:
  std::chrono::system_clock::time_point Now() const override {
    return std::chrono::system_clock::time_point(std::chrono::hours(500'000)) +
           elapsed_;
  }
  std::chrono::steady_clock::time_point MonotonicNow() const override {
    return std::chrono::steady_clock::time_point(std::chrono::hours(1)) +
           elapsed_;
  }
  void Advance(std::chrono::milliseconds time) { elapsed_ += time; }

 private:
  std::chrono::milliseconds elapsed_{0};
};

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SERVER_OBSERVE_MANUAL_CLOCK_H_
