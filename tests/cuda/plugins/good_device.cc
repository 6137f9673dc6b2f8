// A device in a library of its own: a machine with two, which are the CPU and
// pretend that their memory is CUDA's.
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/device_registry.h"

namespace skrull::exec {
namespace {

class PretendedGpu final : public Device {
 public:
  explicit PretendedGpu(bool poison_buffers)
      : cpu_(HostDeviceOptions{.poison_buffers = poison_buffers}) {}

  std::string_view name() const override { return "good"; }
  MemoryKind memory() const override { return MemoryKind::kCuda; }
  Result<Buffer> Allocate(int64_t bytes) override {
    return cpu_.Allocate(bytes);
  }
  Result<Stream> CreateStream(StreamPriority priority) override {
    return cpu_.CreateStream(priority);
  }
  void DestroyStream(Stream s) noexcept override { cpu_.DestroyStream(s); }
  Result<Event> CreateEvent() override { return cpu_.CreateEvent(); }
  void DestroyEvent(Event e) noexcept override { cpu_.DestroyEvent(e); }
  Status Record(Event e, Stream s) override { return cpu_.Record(e, s); }
  Status Wait(Stream s, Event e) override { return cpu_.Wait(s, e); }
  Result<bool> Query(Event e) override { return cpu_.Query(e); }
  Status HostWait(Event e) override { return cpu_.HostWait(e); }
  Status Synchronize(Stream s) override { return cpu_.Synchronize(s); }
  Status Poll() override { return cpu_.Poll(); }
  Status Upload(void* dst, const void* src, int64_t bytes) override {
    return cpu_.Upload(dst, src, bytes);
  }
  Status Zero(void* dst, int64_t bytes, Stream s) override {
    return cpu_.Zero(dst, bytes, s);
  }
  Status GatherRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                    Stream s) override {
    return cpu_.GatherRows(pairs, runs, s);
  }
  Status AddRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                 Stream s) override {
    return cpu_.AddRows(pairs, runs, s);
  }
  Status FoldRows(std::span<const RowPair> pairs, RunList<FoldRun> runs,
                  Stream s) override {
    return cpu_.FoldRows(pairs, runs, s);
  }
  Status MergeAttention(const MergeRows& rows, RunList<CopyRun> runs,
                        Stream s) override {
    return cpu_.MergeAttention(rows, runs, s);
  }

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
