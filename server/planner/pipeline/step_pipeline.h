// A step's micro-batches through the stages of pp_size.
//
// A rank of the pool is a whole TP x PP group, and the cost model's seconds are
// those of the group. A stage does 1 / pp_size of a micro-batch's work at 1 /
// pp_size of the group's rate: it is busy for the micro-batch's seconds,
// overhead included, 1 / (1 + r) of them forward and the rest backward, r being
// cost.backward_forward_ratio. So a step's pipeline time is its
// predicted_seconds plus what the stages idle.
//
// DP ranks that no block joins anywhere in the step run pipelines of their own,
// each over the micro-batches it has work in. DP ranks that some micro-batch
// joins (transitively: a convoy) all follow the order of the micro-batches that
// any of them has work in. Pure; not thread-safe.
#ifndef SKRULL_SERVER_PLANNER_PIPELINE_STEP_PIPELINE_H_
#define SKRULL_SERVER_PLANNER_PIPELINE_STEP_PIPELINE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/job.h"
#include "skrull/planner/pipeline/simulator.h"

namespace skrull {

// One convoy's part of a step.
struct Convoy {
  int32_t first_dp_rank = 0;
  int32_t dp_rank_count = 0;
  std::vector<PipelineUnit> units;  // lanes count from first_dp_rank
  std::vector<size_t> micro_batch;  // per slot: which one it is part of
};

// Build by Add() for each micro-batch in order. `job` must outlive it.
class StepPipeline {
 public:
  explicit StepPipeline(const Job& job)
      : job_(job), joined_(static_cast<size_t>(job.pool().dp_size), char{0}) {}

  // The next micro-batch, as StepClock::components() tells it after its Run().
  void Add(std::span<const Component> components);

  // The convoys with something to run, by DP rank. O(dp_size + components).
  std::vector<Convoy> Convoys() const;

  // The whole step. REQUIRES: micro-batches * dp_size * pp_size <=
  // kMaxStagePasses (planner.h). O of that product.
  PipelineTime Run() const;

 private:
  struct Entry {
    size_t micro_batch;
    Component component;
  };

  const Job& job_;
  size_t micro_batches_ = 0;
  std::vector<Entry> entries_;
  std::vector<char> joined_;  // per DP rank: with the next one, somewhere
};

// One convoy, its slots in their order.
PipelineTime RunConvoy(const Job& job, const Convoy& convoy);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_PIPELINE_STEP_PIPELINE_H_
