// Devices by name: "cpu" is built in, all others are shared objects opened at
// run time, so that this library needs none of their libraries.
#ifndef SKRULL_CUDA_DEVICE_REGISTRY_H_
#define SKRULL_CUDA_DEVICE_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

struct DeviceOptions {
  // Where lib<...>.so is looked for; empty: where the dynamic linker looks.
  std::string directory;
  // Which of the machine's devices of this name, from 0. There is one "cpu".
  int32_t ordinal = 0;
  // Fills new buffers with NaN of every DType, so that reading what nobody
  // wrote shows. Costs a pass over each buffer.
  bool poison_buffers = false;
};

// Opens libskrull_device_<name>.so for a name that is not built in. The library
// stays open until the process ends. Errors: NOT_FOUND saying what is missing,
// which may be a library that the device needs; UNSUPPORTED for a library of
// another interface version; INVALID_ARGUMENT for a name that is not
// [a-z0-9_]+, or an ordinal that the machine does not have; what the device's
// own creation returns.
Result<std::unique_ptr<Device>> CreateDevice(const std::string& name,
                                             const DeviceOptions& options);

// What such a library exports, through SKRULL_EXEC_DEFINE_DEVICE.
//
// Grows with every change of DeviceOptions, and of device.h and what it
// includes: a library is only opened by the version that it was built with.
inline constexpr int32_t kDeviceInterfaceVersion = 3;

using DeviceResult = Result<std::unique_ptr<Device>>;

// In one source file of the library; `create` is a function
// DeviceResult(const DeviceOptions&), which throws nothing. It gets the ordinal
// as the caller gave it, any number, and refuses what it has not with
// INVALID_ARGUMENT.
#define SKRULL_EXEC_DEFINE_DEVICE(create)                                \
  extern "C" {                                                           \
  __attribute__((visibility(                                             \
      "default"))) extern const int32_t skrull_device_interface_version; \
  const int32_t skrull_device_interface_version =                        \
      ::skrull::exec::kDeviceInterfaceVersion;                           \
  __attribute__((visibility("default"))) void skrull_create_device(      \
      const ::skrull::exec::DeviceOptions* options,                      \
      ::skrull::exec::DeviceResult* result) {                            \
    *result = create(*options);                                          \
  }                                                                      \
  }                                                                      \
  static_assert(true, "takes the semicolon")

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_DEVICE_REGISTRY_H_
