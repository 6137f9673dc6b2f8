// Which buckets hold the sequences of batches.
//
// Pure; safe from any thread.
#ifndef SKRULL_SERVER_CALIBRATION_HOLDING_H_
#define SKRULL_SERVER_CALIBRATION_HOLDING_H_

#include <cstdint>
#include <map>
#include <optional>

#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"
#include "skrull/v1/calibration.pb.h"
#include "skrull/v1/job.pb.h"

namespace skrull::calibration {

// The longest sequence, tokens, planned under each policy: what holds it holds
// the shorter ones, too.
using Longest = std::map<Policy, int64_t>;

// Takes in the sequences of a plan.
void AddLongest(const Plan& plan, Longest* longest);

// The smallest bucket in [low, high] with which `spec` in the epoch of `record`
// holds all of them; nullopt if `high` does not, or low > high. O(log(high)).
std::optional<int64_t> SmallestBucket(const v1::JobSpec& spec,
                                      const v1::Calibration& record,
                                      const Longest& longest, int64_t low,
                                      int64_t high);

}  // namespace skrull::calibration

#endif  // SKRULL_SERVER_CALIBRATION_HOLDING_H_
