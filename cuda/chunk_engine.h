// The schedule of one chunk: exchange, store and attention. For the chunk
// executor alone.
#ifndef SKRULL_CUDA_CHUNK_ENGINE_H_
#define SKRULL_CUDA_CHUNK_ENGINE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "skrull/cuda/chunk_step_state.h"
#include "skrull/cuda/chunk_store.h"
#include "skrull/cuda/engine_core.h"
#include "skrull/cuda/executor.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::internal {

// Not thread-safe. What it enqueues on the comm stream is joined into the
// caller's before a call returns, unless it fails.
class ChunkEngine {
 public:
  ChunkEngine(std::unique_ptr<EngineCore> core, int32_t layer_count)
      : core_(std::move(core)),
        store_(core_->device(), core_->problem(), layer_count) {}
  ~ChunkEngine();

  // Makes buffers, kernels, workspace and the store for the step, whose
  // contents are lost. Collective over the CP group. Blocks the host for
  // earlier calls if buffers grow.
  Status Reserve(const ChunkStepState& step);

  // REQUIRES: Reserve(step) was the last one; operations of the step come in
  // order; tensors of the shapes that executor.h says.
  Status Forward(const ChunkStepState& step, int32_t operation, int32_t layer,
                 const ForwardTensors& t, Stream stream);
  Status Backward(const ChunkStepState& step, int32_t operation, int32_t layer,
                  const BackwardTensors& t, Stream stream);

  int64_t store_bytes() const { return store_.bytes(); }

 private:
  // A chunk in one layer, as a call sees it.
  struct Scene;
  struct Keys;
  struct Scratch;

  Device* device() const { return core_->device(); }
  Scene SceneOf(const ChunkStepState& step, int32_t operation,
                int32_t layer) const;
  Scratch TakeScratch(const ChunkMaps& maps, Arena* arena) const;
  Status ZeroRows(const Tensor& rows, Stream stream);

  // All-gathers K and V of the chunk, and appends them to the store.
  Status Store(const Scene& scene, const Tensor& k, const Tensor& v,
               Stream stream);
  // The keys that the chunk's calls read, copied where need be.
  Result<Keys> KeysOf(const Scene& scene, const Tensor& k, const Tensor& v,
                      const Scratch& scratch, Stream stream);
  // Sums the chunk's dK and dV over the ranks, and hands them over.
  Status Deliver(const Scene& scene, const Scratch& scratch,
                 const BackwardTensors& t, Stream stream);
  Status JoinComm(Stream stream);

  const std::unique_ptr<EngineCore> core_;
  ChunkStore store_;
  Event arrived_;  // the last collective that was issued
};

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_CHUNK_ENGINE_H_
