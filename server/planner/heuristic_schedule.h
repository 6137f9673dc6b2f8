// What the paper's heuristics make of a batch: the micro-batches of every DP
// rank, or the first rank to run out of memory in them.
//
// Only a heuristic without roll-back (heuristic.roll_back = false) runs out: it
// shards a sequence that has no rank to be whole on, room or not, as the
// paper's case study runs it. What that would do to a trainer is reported and
// not planned around.
#ifndef SKRULL_SERVER_PLANNER_HEURISTIC_SCHEDULE_H_
#define SKRULL_SERVER_PLANNER_HEURISTIC_SCHEDULE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "skrull/planner/job.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/placement.h"
#include "skrull/planner/plan.h"
#include "skrull/planner/pool_schedule.h"

namespace skrull {

// A rank that holds more than its memory in a micro-batch.
struct MemoryOverflow {
  int64_t micro_batch = 0;
  int32_t rank = 0;      // of the pool; the fullest, the lowest of those
  int64_t load = 0;      // its rows, tokens
  int64_t gathered = 0;  // tokens of the sequences it holds shards of

  friend bool operator==(const MemoryOverflow&,
                         const MemoryOverflow&) = default;
};

struct HeuristicSchedule {
  std::vector<MicroBatchPlan> micro_batches;  // placements only
  int64_t roll_back_count = 0;                // in the placements kept
  // Of the earliest micro-batch that has one, on its lowest DP rank. If set,
  // the placements are no legal plan.
  std::optional<MemoryOverflow> overflow;
};

// The micro-batches of one DP rank in the order they run, not yet joined with
// those of others. Not thread-safe.
class GroupSchedule {
 public:
  // `first_rank`: of the DP rank's CP group, in the pool.
  explicit GroupSchedule(int32_t first_rank) : first_rank_(first_rank) {}

  // Adds a micro-batch: what `placement` holds now. O(its sequences).
  void Add(const Placement& placement);

  int64_t size() const { return std::ssize(micro_batches_); }

  // Appends all of it to `pool`, and its roll-backs and its overflow to
  // `schedule`; it is empty afterwards. REQUIRES: DP ranks come in ascending
  // order. O(micro-batches).
  void MoveTo(int32_t dp_rank, PoolSchedule& pool, HeuristicSchedule& schedule);

 private:
  int32_t first_rank_;
  std::vector<std::vector<SequencePlacement>> micro_batches_;
  int64_t roll_back_count_ = 0;
  std::optional<MemoryOverflow> overflow_;  // micro_batch: of micro_batches_
};

// FAILED_PRECONDITION, kSimulatedOom, field "heuristic.roll_back": `policy` ran
// out of memory, where, and with how much.
absl::Status SimulatedOutOfMemory(const Job& job, Policy policy,
                                  const MemoryOverflow& overflow);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_HEURISTIC_SCHEDULE_H_
