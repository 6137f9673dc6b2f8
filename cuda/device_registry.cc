#include "skrull/cuda/device_registry.h"

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/plugin.h"

namespace skrull::exec {
namespace {

using CreateFunction = void (*)(const DeviceOptions*, DeviceResult*);

constexpr PluginKind kDevice = {
    .what = "device",
    .file_prefix = "skrull_device_",
    .version_symbol = "skrull_device_interface_version",
    .create_symbol = "skrull_create_device",
    .version = kDeviceInterfaceVersion,
    .built_in = "cpu"};

DeviceResult CreateCpuDevice(const DeviceOptions& options) {
  if (options.ordinal != 0) {
    return InvalidArgument("there is one cpu device, and no ordinal " +
                           std::to_string(options.ordinal));
  }
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(
      HostDeviceOptions{.poison_buffers = options.poison_buffers}));
}

}  // namespace

Result<std::unique_ptr<Device>> CreateDevice(const std::string& name,
                                             const DeviceOptions& options) {
  if (name == "cpu") return CreateCpuDevice(options);
  const Result<void*> create = OpenPlugin(kDevice, name, options.directory);
  SKRULL_EXEC_RETURN_IF_ERROR(create.status());
  DeviceResult result(
      Status(StatusCode::kInternal, "device " + name + " created nothing"));
  reinterpret_cast<CreateFunction>(*create)(&options, &result);
  return result;
}

}  // namespace skrull::exec
