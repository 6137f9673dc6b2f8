// The CPU as a Device: each stream is a thread that runs its queue, so that an
// exchange on one stream goes on while attention computes on another.
#ifndef SKRULL_CUDA_CPU_CPU_DEVICE_H_
#define SKRULL_CUDA_CPU_CPU_DEVICE_H_

#include <string_view>

#include "skrull/cuda/cpu/host_device.h"

namespace skrull::exec {

// Streams have no priority here. A waiting stream's thread sleeps.
class CpuDevice final : public HostDevice {
 public:
  explicit CpuDevice(const HostDeviceOptions& options = {})
      : HostDevice(options) {}

  std::string_view name() const override { return "cpu"; }
  // Errors: OUT_OF_MEMORY if no thread starts.
  Result<Stream> CreateStream(StreamPriority priority) override;
  void DestroyStream(Stream stream) noexcept override;
  Result<Event> CreateEvent() override;
  void DestroyEvent(Event event) noexcept override;
  Status Record(Event event, Stream stream) override;
  Status Wait(Stream stream, Event event) override;
  Result<bool> Query(Event event) override;
  Status HostWait(Event event) override;
  Status Synchronize(Stream stream) override;

 private:
  class ThreadQueue;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CPU_CPU_DEVICE_H_
