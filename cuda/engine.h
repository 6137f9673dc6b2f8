// One schedule of exchange and attention. For the executor alone.
#ifndef SKRULL_CUDA_ENGINE_H_
#define SKRULL_CUDA_ENGINE_H_

#include <memory>

#include "skrull/cuda/engine_core.h"
#include "skrull/cuda/executor.h"
#include "skrull/cuda/status.h"
#include "skrull/cuda/step_state.h"

namespace skrull::exec::internal {

// Not thread-safe. What Forward and Backward enqueue on the comm stream is
// joined into the caller's before they return, unless they fail.
class Engine {
 public:
  virtual ~Engine() = default;

  // Makes buffers, kernels and workspace for the step's calls. Collective over
  // each of its blocks, ascending. Blocks the host for earlier calls if buffers
  // grow.
  virtual Status Reserve(const StepState& step) = 0;

  // REQUIRES: Reserve(step) for the micro-batch's step; tensors of the shapes
  // that executor.h says.
  virtual Status Forward(const MicroBatchState& mb, const ForwardTensors& t,
                         Stream stream) = 0;
  virtual Status Backward(const MicroBatchState& mb, const BackwardTensors& t,
                          Stream stream) = 0;
};

std::unique_ptr<Engine> NewAllGatherEngine(std::unique_ptr<EngineCore> core);
std::unique_ptr<Engine> NewRingEngine(std::unique_ptr<EngineCore> core);

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_ENGINE_H_
