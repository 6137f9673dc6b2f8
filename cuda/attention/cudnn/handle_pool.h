// cuDNN handles for calls of many threads.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_HANDLE_POOL_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_HANDLE_POOL_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "cudnn.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::cudnn {

// A handle belongs to a device and may be used by one thread at a time, and
// takes long to make. Thread-safe; handles must be back when it is destroyed.
class HandlePool {
 public:
  // Gives the handle back at its end. Moves, never copies.
  class Lease {
   public:
    Lease(HandlePool* pool, int32_t device, cudnnHandle_t handle)
        : pool_(pool), device_(device), handle_(handle) {}
    Lease(Lease&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)),
          device_(other.device_),
          handle_(other.handle_) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (pool_ != nullptr) pool_->Return(device_, handle_);
    }
    cudnnHandle_t handle() const { return handle_; }

   private:
    HandlePool* pool_;
    int32_t device_;
    cudnnHandle_t handle_;
  };

  HandlePool() = default;
  HandlePool(const HandlePool&) = delete;
  HandlePool& operator=(const HandlePool&) = delete;
  // Leaves the handles to the process's end: destroying them when the driver is
  // already gone would crash.
  ~HandlePool() = default;

  // One for the calling thread's current device. Errors: DEVICE_ERROR.
  Result<Lease> Borrow();

 private:
  void Return(int32_t device, cudnnHandle_t handle);

  std::mutex mutex_;
  std::map<int32_t, std::vector<cudnnHandle_t>> free_;  // protected by mutex_
};

// DEVICE_ERROR with the library's text, or OK.
Status FromCudnn(const char* what, cudnnStatus_t status);

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_HANDLE_POOL_H_
