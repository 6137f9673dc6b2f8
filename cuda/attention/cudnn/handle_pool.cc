#include "skrull/cuda/attention/cudnn/handle_pool.h"

#include <string>

#include "skrull/cuda/gpu/cuda_call.h"

namespace skrull::exec::cudnn {

Status FromCudnn(const char* what, cudnnStatus_t status) {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  return {StatusCode::kDeviceError,
          std::string(what) + ": " + cudnnGetErrorString(status)};
}

Result<HandlePool::Lease> HandlePool::Borrow() {
  int32_t device = 0;
  SKRULL_EXEC_RETURN_IF_ERROR(exec::internal::CurrentOrdinal(&device));
  {
    const std::lock_guard lock(mutex_);
    std::vector<cudnnHandle_t>& free = free_[device];
    if (!free.empty()) {
      const cudnnHandle_t handle = free.back();
      free.pop_back();
      return Lease(this, device, handle);
    }
  }
  cudnnHandle_t handle = nullptr;
  SKRULL_EXEC_RETURN_IF_ERROR(FromCudnn("cudnnCreate", cudnnCreate(&handle)));
  return Lease(this, device, handle);
}

void HandlePool::Return(int32_t device, cudnnHandle_t handle) {
  const std::lock_guard lock(mutex_);
  free_[device].push_back(handle);
}

}  // namespace skrull::exec::cudnn
