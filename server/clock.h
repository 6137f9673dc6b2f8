// The daemon's only source of time, injected so that tests can hold it still.
#ifndef SKRULL_SERVER_CLOCK_H_
#define SKRULL_SERVER_CLOCK_H_

#include <chrono>

namespace skrull {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // To show people: jumps when the machine's clock is set.
  virtual std::chrono::system_clock::time_point Now() const = 0;
  // To measure durations and deadlines: never goes back.
  virtual std::chrono::steady_clock::time_point MonotonicNow() const = 0;

  // The machine's clock; lives for the whole process.
  static const Clock* Real();
};

}  // namespace skrull

#endif  // SKRULL_SERVER_CLOCK_H_
