// Pipeline parallelism: when the stages of a step are busy, and when they idle.
//
// Units of work (micro-batches, or chunks) pass forward through all stages,
// first to last, and backward through all, last to first. Each stage runs one
// pass at a time in the order of 1F1B (Megatron-LM): stage s of p warms up with
// p - 1 - s forward passes and then takes one forward and one backward pass in
// turn while forward passes are left. In the state-aware form (ChunkFlow, arXiv
// 2503.02356) backward passes come in an order of their own, since the chunks
// of one sequence go backward last to first; a stage then runs forward passes
// on until the unit whose backward pass is next has had its own. With units
// going backward in the order they went forward the two forms are the same.
//
// Passing results between stages is free. Pure; safe from any thread.
#ifndef SKRULL_SERVER_PLANNER_PIPELINE_SIMULATOR_H_
#define SKRULL_SERVER_PLANNER_PIPELINE_SIMULATOR_H_

#include <cstdint>
#include <span>

namespace skrull {

// Work of one slot, on consecutive lanes that run it together: a pass of it on
// a stage begins when all of them are ready there and ends on all at once. A
// lane is a pipeline: a DP rank's.
struct PipelineUnit {
  int32_t slot = 0;  // place in the order of forward passes, from 0
  int32_t first_lane = 0;
  int32_t lane_count = 1;
  // Of each stage. A pass that recomputes what was discarded counts it in
  // backward_seconds: a stage recomputes its own layers, from their input,
  // when the gradient arrives.
  double forward_seconds = 0;
  double backward_seconds = 0;
};

struct PipelineTime {
  // From the first pass to the end of the last.
  double makespan_seconds = 0;
  // Sum of the passes of every stage of every lane.
  double busy_seconds = 0;

  // Share of lanes * stages * makespan_seconds in which no pass ran; 0 if
  // nothing ran.
  double Bubble(int32_t lanes, int32_t stages) const;
};

// Simulates `stages` stages of `lanes` lanes. Every lane follows the same order
// of slots, and passes over those it has no unit in without delay: so lanes
// that run some units together never wait for each other in a circle.
//
// `units` come by slot, at most one a lane and slot; `backward_order` lists
// every slot once. REQUIRES: stages >= 1; slots are in
// [0, backward_order.size()), lanes of units in [0, lanes); seconds >= 0.
// O((units' lanes + slots) * stages) time, O(units * stages) memory.
PipelineTime SimulatePipeline(int32_t stages, int32_t lanes,
                              std::span<const PipelineUnit> units,
                              std::span<const int32_t> backward_order);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_PIPELINE_SIMULATOR_H_
