// libskrull_device_cuda.so: the device named "cuda" of device_registry.h.
#include <new>

#include "skrull/cuda/device_registry.h"
#include "skrull/cuda/gpu/cuda_device.h"

namespace skrull::exec {
namespace {

DeviceResult Create(const DeviceOptions& options) {
  try {
    return CreateCudaDevice(options);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "no host memory for a device");
  }
}

}  // namespace
}  // namespace skrull::exec

SKRULL_EXEC_DEFINE_DEVICE(skrull::exec::Create);
