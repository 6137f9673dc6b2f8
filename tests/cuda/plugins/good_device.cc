// A device in a library of its own: a machine with two, which are the CPU and
// pretend that their memory is CUDA's.
#include <memory>
#include <string>
#include <string_view>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/device_registry.h"
#include "skrull/tests/cuda/forwarding_device.h"

namespace skrull::exec {
namespace {

class PretendedGpu final : public testing::ForwardingDevice {
 public:
  explicit PretendedGpu(bool poison_buffers)
      : ForwardingDevice(&cpu_),
        cpu_(HostDeviceOptions{.poison_buffers = poison_buffers}) {}

  std::string_view name() const override { return "good"; }
  MemoryKind memory() const override { return MemoryKind::kCuda; }

 private:
  CpuDevice cpu_;
};

DeviceResult Create(const DeviceOptions& options) {
  if (options.ordinal < 0 || options.ordinal > 1) {
    return Status(StatusCode::kInvalidArgument,
                  "of two devices, none is " + std::to_string(options.ordinal));
  }
  return std::unique_ptr<Device>(
      std::make_unique<PretendedGpu>(options.poison_buffers));
}

}  // namespace
}  // namespace skrull::exec

SKRULL_EXEC_DEFINE_DEVICE(skrull::exec::Create);
