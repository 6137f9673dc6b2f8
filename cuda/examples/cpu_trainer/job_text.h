// The example's training job as the text form of skrull.v1.JobSpec.
#ifndef SKRULL_CUDA_EXAMPLES_CPU_TRAINER_JOB_TEXT_H_
#define SKRULL_CUDA_EXAMPLES_CPU_TRAINER_JOB_TEXT_H_

#include <cstdint>
#include <string>

#include "skrull/cuda/examples/cpu_trainer/model.h"

namespace skrull::examples {

// The coefficients of the cost model (CostSpec), here of a CPU thread. The
// defaults are those of no machine in particular; model_truth fits them.
struct Coefficients {
  double seconds_per_flop = 2e-10;
  double efficiency_half_tokens = 0;
  double seconds_per_micro_batch = 1e-3;
  double seconds_per_collective = 1e-5;
  double seconds_per_byte = 5e-10;
};

struct JobShape {
  int32_t dp_size = 2;
  int32_t cp_size = 2;
  int64_t bucket_size_tokens = 512;
};

// Block scope POOL; forward and backward without recomputation; float32 keys
// and values, gathered twice and reduced once a layer.
std::string JobText(const ModelConfig& model, const JobShape& shape,
                    const Coefficients& cost);

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_CPU_TRAINER_JOB_TEXT_H_
