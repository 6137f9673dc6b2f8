#include "skrull/server/length_quota.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"

namespace skrull {
namespace {

// Shortest hint: a client that retries sooner finds the bucket as empty.
constexpr double kLeastRetrySeconds = 0.01;

}  // namespace

absl::Status LengthQuota::Check(const std::string& client) {
  if (per_second_ == 0) return absl::OkStatus();
  const Time now = clock_->MonotonicNow();
  MutexLock lock(&mutex_);
  const auto it = buckets_.find(client);
  if (it == buckets_.end()) return absl::OkStatus();
  const double level = Level(it->second, now);
  if (level > 0) return absl::OkStatus();
  const double wait = -level / static_cast<double>(per_second_);
  return MakeError({.reason = ErrorReason::kQuotaExceeded,
                    .field = "lengths",
                    .limit = per_second_,
                    .retry_after_seconds = std::max(kLeastRetrySeconds, wait)},
                   absl::StrCat("lengths: this client is over its quota of ",
                                per_second_, " lengths a second"));
}

void LengthQuota::Charge(const std::string& client, int64_t lengths) {
  if (per_second_ == 0) return;
  const Time now = clock_->MonotonicNow();
  MutexLock lock(&mutex_);
  if (buckets_.size() >= sweep_at_) Sweep(now);
  Bucket& bucket =
      buckets_.try_emplace(client, Bucket{Burst(), now}).first->second;
  bucket = {Level(bucket, now) - static_cast<double>(lengths), now};
}

int64_t LengthQuota::clients() {
  MutexLock lock(&mutex_);
  return std::ssize(buckets_);
}

double LengthQuota::Level(const Bucket& bucket, Time now) const {
  const std::chrono::duration<double> passed = now - bucket.time;
  return std::min(Burst(), bucket.lengths + static_cast<double>(per_second_) *
                                                passed.count());
}

void LengthQuota::Sweep(Time now) {
  std::erase_if(buckets_, [this, now](const auto& entry) {
    return Level(entry.second, now) >= Burst();
  });
  sweep_at_ = std::max<size_t>(64, 2 * buckets_.size());
}

}  // namespace skrull
