// The end of an executor's last call.
#ifndef SKRULL_CUDA_FENCE_H_
#define SKRULL_CUDA_FENCE_H_

#include "skrull/cuda/device.h"

namespace skrull::exec::internal {

// Shared by the executor and its steps, so that neither frees what work still
// uses.
class Fence {
 public:
  Fence(Device* device, Event done) : device_(device), done_(done) {}
  ~Fence() { device_->DestroyEvent(done_); }
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

  Event done() const { return done_; }
  // Blocks the host until the work of all calls is done.
  void HostWait() { (void)device_->HostWait(done_); }

 private:
  Device* const device_;
  const Event done_;
};

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_FENCE_H_
