// A device in a library of its own: a machine with two CPUs.
#include <memory>
#include <string>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/device_registry.h"

namespace skrull::exec {
namespace {

DeviceResult Create(const DeviceOptions& options) {
  if (options.ordinal < 0 || options.ordinal > 1) {
    return Status(StatusCode::kInvalidArgument,
                  "of two devices, none is " + std::to_string(options.ordinal));
  }
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(
      HostDeviceOptions{.poison_buffers = options.poison_buffers}));
}

}  // namespace
}  // namespace skrull::exec

SKRULL_EXEC_DEFINE_DEVICE(skrull::exec::Create);
