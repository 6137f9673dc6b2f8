// When each rank does what in a step: the objective, drawn.
//
// StepClock says how long a step takes; RankTimeline cuts the same seconds into
// spans, rank by rank. What a rank computes is one track without gaps from 0 to
// the end of the step; its K/V exchange runs beside it and is another.
//
//   OVERLAP_SCOPE_LAYER        compute   overhead | local | wait  | sharded |
//   idle
//                              exchange           | exchange      |
//   OVERLAP_SCOPE_ATTENTION    compute   overhead | linear | local | wait |
//   sharded
//                              exchange                    | exchange     |
//
// There `linear` is the linear layers of all rows, and `local` and `sharded`
// are attention alone.
#ifndef SKRULL_SERVER_PLANNER_RANK_TIMELINE_H_
#define SKRULL_SERVER_PLANNER_RANK_TIMELINE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/job.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/plan.h"

namespace skrull {

enum class RankActivity : int8_t {
  kOverhead,  // seconds_per_micro_batch
  kLinear,    // linear layers of all rows (OVERLAP_SCOPE_ATTENTION only)
  kLocal,     // local sequences
  kWait,      // for an exchange that local work does not hide
  kSharded,   // shares of sharded sequences
  kIdle,      // others are not ready
  kExchange,  // of keys and values; beside the others
};

// "overhead" for kOverhead, and so on.
std::string RankActivityName(RankActivity activity);

// A rank is in `activity` during [start, end), seconds from the begin of the
// step; end > start.
struct RankSpan {
  // The micro-batch it is part of. Idle spans: the one the rank waits to see
  // ended or to begin; kStepEnd after its last one.
  static constexpr int32_t kStepEnd = -1;

  int32_t rank = 0;
  int32_t micro_batch = 0;
  RankActivity activity = RankActivity::kIdle;
  double start = 0;
  double end = 0;

  double seconds() const { return end - start; }
  friend bool operator==(const RankSpan&, const RankSpan&) = default;
};

// Spans of a step, micro-batch by micro-batch, so that a caller need not hold
// them all. Over a whole step, all spans of a rank but kExchange tile [0,
// seconds()] in ascending order, each beginning where the one before it ends.
// Not thread-safe. Memory O(ranks).
class RankTimeline {
 public:
  // `job` and `cost` must outlive the timeline.
  RankTimeline(const Job& job, const CostModel& cost);

  // Runs the next micro-batch and appends its spans, rank by rank, each rank's
  // in order of their start (kExchange after the span it begins with).
  // REQUIRES: as StepClock::Run; Finish() was not called. O(placements +
  // ranks).
  void Run(std::span<const SequencePlacement> placements,
           std::vector<RankSpan>* spans);

  // Appends the ranks' idle spans to the end of the step. O(ranks).
  void Finish(std::vector<RankSpan>* spans);

  // predicted_seconds of what has run so far.
  double seconds() const { return clock_.seconds(); }

  // The clock that ran the micro-batches: rows and seconds of the last one.
  const StepClock& clock() const { return clock_; }

 private:
  void Append(int32_t rank, RankActivity activity, double start, double end,
              std::vector<RankSpan>* spans) const;
  void AppendRank(int32_t rank, const StepClock::Slot& slot,
                  std::vector<RankSpan>* spans);

  const Job& job_;
  const CostModel& cost_;
  StepClock clock_;
  int32_t micro_batch_ = 0;    // that runs, or runs next
  std::vector<double> ready_;  // per DP rank, before it
};

// All spans of a plan, by micro-batch, rank and start. REQUIRES: the plan is
// legal for `job` and has micro-batches (is not of POLICY_CHUNK_FLOW).
// O(placements + ranks * micro-batches) time and memory.
std::vector<RankSpan> StepSpans(const Job& job, const Plan& plan);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_RANK_TIMELINE_H_
