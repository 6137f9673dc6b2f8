// The example's training job as the text form of skrull.v1.JobSpec.
#ifndef SKRULL_CUDA_EXAMPLES_CPU_TRAINER_JOB_TEXT_H_
#define SKRULL_CUDA_EXAMPLES_CPU_TRAINER_JOB_TEXT_H_

#include <cstdint>
#include <string>

#include "skrull/cuda/examples/cpu_trainer/model.h"
#include "skrull/cuda/profile/cost.h"

namespace skrull::examples {

struct JobShape {
  int32_t dp_size = 2;
  int32_t cp_size = 2;
  int64_t bucket_size_tokens = 512;
};

profile::ModelShape ShapeOf(const ModelConfig& model);

// Forward and backward without recomputation; float32 keys and values, gathered
// twice and reduced once a layer.
profile::CostForm TrainerForm();

// Block scope POOL, what CostText of skrull-profile says of a machine with
// these coefficients, and all links equal.
std::string JobText(const ModelConfig& model, const JobShape& shape,
                    const profile::Coefficients& cost);

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_CPU_TRAINER_JOB_TEXT_H_
