// A clock that stands until it is told to go.
#ifndef SKRULL_TESTS_SERVER_FAKE_CLOCK_H_
#define SKRULL_TESTS_SERVER_FAKE_CLOCK_H_

#include <atomic>
#include <chrono>

#include "skrull/server/clock.h"

namespace skrull::testing {

// Thread-safe.
class FakeClock final : public Clock {
 public:
  void Advance(std::chrono::microseconds time) { micros_ += time.count(); }

  std::chrono::system_clock::time_point Now() const override {
    return std::chrono::system_clock::time_point(
        std::chrono::microseconds(micros_));
  }
  std::chrono::steady_clock::time_point MonotonicNow() const override {
    return std::chrono::steady_clock::time_point(
        std::chrono::microseconds(micros_));
  }

 private:
  std::atomic<int64_t> micros_ = 1'000'000'000;
};

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SERVER_FAKE_CLOCK_H_
