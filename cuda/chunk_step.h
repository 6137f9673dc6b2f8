// A rank's chunk plan made ready for execution: its program and the copies of
// its lists on the device. Made by ChunkExecutor::Prepare.
#ifndef SKRULL_CUDA_CHUNK_STEP_H_
#define SKRULL_CUDA_CHUNK_STEP_H_

#include <cstdint>
#include <memory>

#include "skrull/cuda/chunk_program.h"

namespace skrull::exec {

namespace internal {
struct ChunkStepState;
}  // namespace internal

// Immutable. Destroying it waits for the work that uses it, so the device must
// outlive it; the executor need not.
class ChunkStep {
 public:
  explicit ChunkStep(std::unique_ptr<internal::ChunkStepState> state);
  ChunkStep(ChunkStep&&) noexcept;
  ChunkStep& operator=(ChunkStep&&) noexcept;
  ~ChunkStep();

  // Operations are those of RankChunkPlan::operations, in the same order.
  int32_t operation_count() const;
  const ChunkProgram& program() const;
  // Of the operation's chunk. REQUIRES: 0 <= operation < operation_count().
  const ChunkMaps& maps(int32_t operation) const;

  const internal::ChunkStepState& state() const { return *state_; }

 private:
  std::unique_ptr<internal::ChunkStepState> state_;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CHUNK_STEP_H_
