// What every executor does around its calls: their order on streams, the first
// failure, polling and waiting. For the executors alone.
#ifndef SKRULL_CUDA_CALL_GUARD_H_
#define SKRULL_CUDA_CALL_GUARD_H_

#include <chrono>
#include <memory>

#include "skrull/cuda/communicator.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/fence.h"
#include "skrull/cuda/first_failure.h"
#include "skrull/cuda/status.h"
#include "skrull/cuda/without_exceptions.h"

namespace skrull::exec::internal {

// Device and communicators outlive it. Start comes first; Run one at a time;
// the rest may be called from any thread at any time after Start.
class CallGuard {
 public:
  CallGuard(Device* device, CommunicatorSet* communicators)
      : device_(device), communicators_(communicators) {}

  // Errors: those of the device.
  Status Start();

  // Of the calls; null before Start.
  const std::shared_ptr<Fence>& fence() const { return fence_; }

  // Enqueues by enqueue() what runs after the last call's work and before the
  // next one's.
  template <class Enqueue>
  Status Run(Stream stream, const Enqueue& enqueue) {
    SKRULL_EXEC_RETURN_IF_ERROR(device_->Wait(stream, fence_->done()));
    const Status status = enqueue();
    // Also after a failure: what was enqueued uses the step.
    const Status recorded = device_->Record(fence_->done(), stream);
    if (!recorded.ok()) (void)device_->Synchronize(stream);
    return status.ok() ? recorded : status;
  }

  // One call of an executor: work() unless there is a failure, and what it
  // returns or throws is one. Returns the first failure.
  template <class Work>
  Status Guarded(const Work& work) {
    SKRULL_EXEC_RETURN_IF_ERROR(Poll());
    Fail(WithoutExceptions(work));
    return failure();
  }

  // The first failure. Asks device and communicators, unless there is one.
  Status Poll();
  // Until all work is done; DEADLINE_EXCEEDED after `timeout` is a failure.
  Status Wait(std::chrono::nanoseconds timeout);
  // Keeps `cause` as the first failure and aborts the communicators. No effect
  // if it is OK, or if there is one already.
  void Fail(const Status& cause) noexcept;
  Status failure() const { return failure_.Get(); }

 private:
  Device* const device_;
  CommunicatorSet* const communicators_;
  std::shared_ptr<Fence> fence_;
  FirstFailure failure_;
};

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_CALL_GUARD_H_
