// Checks that every executor makes of what it is given.
#ifndef SKRULL_CUDA_EXECUTOR_CHECK_H_
#define SKRULL_CUDA_EXECUTOR_CHECK_H_

#include <cstdint>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/executor.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

// INVALID_ARGUMENT naming the option that is wrong.
Status CheckOptions(const ExecutorOptions& options);

// INVALID_ARGUMENT naming the resource that is null or on another kind of
// memory; UNSUPPORTED by the backend.
Status CheckResources(const AttentionProblem& problem,
                      const ExecutorResources& resources);

// INVALID_ARGUMENT naming the tensor that does not have the shape of
// executor.h with `rows` rows, or the order of the LSE.
Status CheckTensors(const AttentionProblem& problem, int64_t rows,
                    LseOrder order, const ForwardTensors& t);
Status CheckTensors(const AttentionProblem& problem, int64_t rows,
                    LseOrder order, const BackwardTensors& t);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_EXECUTOR_CHECK_H_
