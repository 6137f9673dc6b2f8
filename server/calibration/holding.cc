#include "skrull/server/calibration/holding.h"

#include <algorithm>
#include <vector>

#include "skrull/planner/planner.h"
#include "skrull/server/calibration/numbers.h"
#include "skrull/server/calibration/reported_step.h"

namespace skrull::calibration {
namespace {

bool Holds(const v1::JobSpec& spec, const v1::Calibration& record,
           const Longest& longest, int64_t bucket) {
  v1::Calibration with_bucket = record;
  with_bucket.set_bucket_size_tokens(bucket);
  const absl::StatusOr<Epoch> epoch = MakeEpoch(spec, with_bucket);
  if (!epoch.ok()) return false;
  return std::all_of(longest.begin(), longest.end(), [&](const auto& entry) {
    const std::vector<int64_t> lengths = {entry.second};
    return CheckBatch(epoch->job, lengths, entry.first).ok();
  });
}

}  // namespace

void AddLongest(const Plan& plan, Longest* longest) {
  int64_t& most = (*longest)[plan.policy];
  for (const int64_t length : LengthsOf(plan)) most = std::max(most, length);
}

std::optional<int64_t> SmallestBucket(const v1::JobSpec& spec,
                                      const v1::Calibration& record,
                                      const Longest& longest, int64_t low,
                                      int64_t high) {
  if (low > high || !Holds(spec, record, longest, high)) return std::nullopt;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (Holds(spec, record, longest, middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

}  // namespace skrull::calibration
