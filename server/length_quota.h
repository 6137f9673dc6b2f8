// How many lengths a second each client may have planned.
//
// A bucket a client, which fills at the quota's rate and holds at most
// kBurstSeconds of it. A batch may be planned while the bucket is not empty,
// and takes out its lengths whatever is in there; so a batch of any size can be
// planned, and the bucket is paid back before the next.
#ifndef SKRULL_SERVER_LENGTH_QUOTA_H_
#define SKRULL_SERVER_LENGTH_QUOTA_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "skrull/server/clock.h"
#include "skrull/server/mutex.h"

namespace skrull {

// Thread-safe.
class LengthQuota {
 public:
  // A trainer that reads ahead sends several steps' batches at once, and then
  // none for as many steps; steps take seconds.
  static constexpr double kBurstSeconds = 10;

  // `per_second` 0: any number. `clock` must outlive the object.
  LengthQuota(int64_t per_second, const Clock* clock)
      : per_second_(per_second), clock_(clock) {}

  // OK if a batch of the client may be planned now. Errors: kQuotaExceeded,
  // with the time until it may. Takes nothing out.
  absl::Status Check(const std::string& client) SKRULL_EXCLUDES(mutex_);

  // Takes out a batch that is planned, or answered. Calls that were checked at
  // the same instant may all be charged: the client owes what is too much.
  void Charge(const std::string& client, int64_t lengths)
      SKRULL_EXCLUDES(mutex_);

  // Clients that are remembered: those whose bucket is not full, and some that
  // have filled up since.
  int64_t clients() SKRULL_EXCLUDES(mutex_);

 private:
  using Time = std::chrono::steady_clock::time_point;

  struct Bucket {
    double lengths = 0;  // at `time`; negative: owed
    Time time;
  };

  double Burst() const {
    return static_cast<double>(per_second_) * kBurstSeconds;
  }
  // What is in the bucket at `now`.
  double Level(const Bucket& bucket, Time now) const;
  // Forgets full buckets, once there are twice as many as the last time.
  void Sweep(Time now) SKRULL_REQUIRES(mutex_);

  const int64_t per_second_;
  const Clock* const clock_;

  Mutex mutex_;
  // A client without one has a full bucket.
  std::unordered_map<std::string, Bucket> buckets_ SKRULL_GUARDED_BY(mutex_);
  size_t sweep_at_ SKRULL_GUARDED_BY(mutex_) = 64;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_LENGTH_QUOTA_H_
