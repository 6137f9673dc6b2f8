// A stream for as long as it lives.
#ifndef SKRULL_CUDA_PROFILE_OWN_STREAM_H_
#define SKRULL_CUDA_PROFILE_OWN_STREAM_H_

#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"

namespace skrull::profile {

// The device outlives it.
class OwnStream {
 public:
  explicit OwnStream(exec::Device* device) : device_(device) {}
  ~OwnStream() {
    if (stream_.handle != nullptr) device_->DestroyStream(stream_);
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  // Once. Errors: those of the device.
  exec::Status Create(
      exec::StreamPriority priority = exec::StreamPriority::kNormal) {
    const exec::Result<exec::Stream> made = device_->CreateStream(priority);
    SKRULL_EXEC_RETURN_IF_ERROR(made.status());
    stream_ = *made;
    return {};
  }
  exec::Stream get() const { return stream_; }

 private:
  exec::Device* const device_;
  exec::Stream stream_;
};

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_OWN_STREAM_H_
