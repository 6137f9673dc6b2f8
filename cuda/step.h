// A rank plan made ready for execution: maps and their copies on the device.
// Made by Executor::Prepare.
#ifndef SKRULL_CUDA_STEP_H_
#define SKRULL_CUDA_STEP_H_

#include <cstdint>
#include <memory>

#include "skrull/cuda/maps.h"

namespace skrull::exec {

namespace internal {
struct StepState;
}  // namespace internal

// Immutable. Destroying it waits for the work that uses it, so the device must
// outlive it; the executor need not.
class Step {
 public:
  explicit Step(std::unique_ptr<internal::StepState> state);
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;
  ~Step();

  int32_t micro_batch_count() const;
  // REQUIRES: 0 <= micro_batch < micro_batch_count().
  const MicroBatchMaps& maps(int32_t micro_batch) const;

  const internal::StepState& state() const { return *state_; }

 private:
  std::unique_ptr<internal::StepState> state_;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_STEP_H_
