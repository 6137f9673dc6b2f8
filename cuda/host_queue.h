// What a Stream's handle points to on a device with host memory. Backends and
// communicators that compute on the host enqueue their work through it.
#ifndef SKRULL_CUDA_HOST_QUEUE_H_
#define SKRULL_CUDA_HOST_QUEUE_H_

#include <functional>
#include <utility>

#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

// Runs when the work before it is done, with the device's state: OK, or the
// failure of earlier work, and then it must do nothing but tell others. What it
// returns becomes the device's failure, if it is the first. Exceptions that
// leave a task are caught: std::bad_alloc becomes OUT_OF_MEMORY, others
// INTERNAL.
using HostTask = std::function<Status(const Status& device)>;

class HostQueue {
 public:
  virtual ~HostQueue() = default;

  // Tasks of one queue run in order, one at a time. Any thread. Errors:
  // OUT_OF_MEMORY.
  virtual Status Enqueue(HostTask task) = 0;
};

// REQUIRES: a stream of a device with host memory, or a null handle. Errors:
// INVALID_ARGUMENT for a null handle.
inline Status EnqueueOnHost(Stream stream, HostTask task) {
  if (stream.handle == nullptr) {
    return InvalidArgument("the stream is null");
  }
  return static_cast<HostQueue*>(stream.handle)->Enqueue(std::move(task));
}

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_HOST_QUEUE_H_
