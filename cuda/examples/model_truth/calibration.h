// From measured micro-batches to the coefficients of the planner's cost model.
#ifndef SKRULL_CUDA_EXAMPLES_MODEL_TRUTH_CALIBRATION_H_
#define SKRULL_CUDA_EXAMPLES_MODEL_TRUTH_CALIBRATION_H_

#include <cstdint>
#include <vector>

#include "skrull/cuda/examples/cpu_trainer/job_text.h"
#include "skrull/cuda/examples/cpu_trainer/meter.h"
#include "skrull/cuda/examples/cpu_trainer/model.h"
#include "skrull/planner/rank_plan.h"

namespace skrull::examples {

// What one rank did in one micro-batch, and how long it took.
struct MeasuredMicroBatch {
  std::vector<RankSegment> segments;
  // Tokens of the whole sequences, and number, of the blocks it exchanged with.
  int64_t block_tokens = 0;
  int64_t block_count = 0;
  RankSeconds seconds;
};

MeasuredMicroBatch ToMeasured(const RankMicroBatch& micro_batch,
                              const RankSeconds& seconds);

// Least squares of relative errors, over the cost model's formulas
// (docs/concepts.md, "Cost"; FLOPS_FORMULA_EXACT):
//   computing = seconds_per_flop * (linear + attention FLOPs of its shares)
//             + seconds_per_flop * efficiency_half_tokens * (...)
//             + seconds_per_micro_batch
//   exchange  = 3 * layers * (blocks * seconds_per_collective
//             + bytes * seconds_per_byte)
// The model has one rate for linear layers and attention: what attention of
// short segments loses is efficiency_half_tokens. Micro-batches without rows
// are left out. REQUIRES: some micro-batch has rows.
Coefficients Fit(const ModelConfig& model,
                 const std::vector<MeasuredMicroBatch>& measured);

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_MODEL_TRUTH_CALIBRATION_H_
