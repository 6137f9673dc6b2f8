#include "skrull/server/alarm.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>

#include "skrull/server/clock.h"

namespace skrull {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("An alarm rings once its earliest time has come") {
  const auto start = Clock::Real()->MonotonicNow();
  std::promise<Alarm::Time> rung;
  Alarm alarm(Clock::Real(), [&rung](Alarm::Time now) {
    rung.set_value(now);  // throws if it rings twice
    return Alarm::kNever;
  });
  alarm.Set(start + hours(1));
  alarm.Set(start + milliseconds(20));
  alarm.Set(start + hours(2));
  CHECK(rung.get_future().get() >= start + milliseconds(20));
}

TEST_CASE(
    "An alarm rings again when its owner says, and for times that are "
    "over") {
  std::promise<void> done;
  int rings = 0;
  Alarm alarm(Clock::Real(), [&](Alarm::Time now) {
    if (++rings < 3) return now + milliseconds(1);
    if (rings == 3) done.set_value();
    return Alarm::kNever;
  });
  alarm.Set(Clock::Real()->MonotonicNow() - seconds(1));
  done.get_future().get();
  CHECK(rings == 3);
}

TEST_CASE("A time that is set while the alarm rings is not lost") {
  std::promise<void> second;
  int rings = 0;
  std::function<void(Alarm::Time)> set;
  Alarm alarm(Clock::Real(), [&](Alarm::Time now) {
    if (++rings == 1) {
      set(now);
    } else if (rings == 2) {
      second.set_value();
    }
    return Alarm::kNever;
  });
  set = [&alarm](Alarm::Time time) { alarm.Set(time); };
  alarm.Set(Clock::Real()->MonotonicNow());
  second.get_future().get();
}

TEST_CASE("An alarm that nobody set ends at once") {
  int rings = 0;
  {
    const Alarm alarm(Clock::Real(), [&rings](Alarm::Time) {
      ++rings;
      return Alarm::kNever;
    });
  }
  CHECK(rings == 0);
}

}  // namespace
}  // namespace skrull
