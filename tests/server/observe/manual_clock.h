// A clock that tests move.
#ifndef SKRULL_TESTS_SERVER_OBSERVE_MANUAL_CLOCK_H_
#define SKRULL_TESTS_SERVER_OBSERVE_MANUAL_CLOCK_H_

#include <atomic>
#include <chrono>

#include "skrull/server/clock.h"

namespace skrull::testing {

// One thread at a time may move it, others may read it.
class ManualClock : public Clock {
 public:
  std::chrono::system_clock::time_point Now() const override {
    return std::chrono::system_clock::time_point(std::chrono::hours(500'000)) +
           elapsed_.load();
  }
  std::chrono::steady_clock::time_point MonotonicNow() const override {
    return std::chrono::steady_clock::time_point(std::chrono::hours(1)) +
           elapsed_.load();
  }
  void Advance(std::chrono::milliseconds time) {
    elapsed_ = elapsed_.load() + time;  // by one thread at a time
  }

 private:
  std::atomic<std::chrono::milliseconds> elapsed_ =
      std::chrono::milliseconds(0);
};

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SERVER_OBSERVE_MANUAL_CLOCK_H_
