// A GPU without a GPU: CpuDevice's memory, streams and events, and CUDA's
// kernels under cuda/sim.
#ifndef SKRULL_TESTS_CUDA_SIM_SIM_DEVICE_H_
#define SKRULL_TESTS_CUDA_SIM_SIM_DEVICE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/kernels/row_kernels.h"
#include "skrull/cuda/kernels/sum.h"

namespace skrull::exec::testing {

// New buffers are poisoned. Thread-safe as Device.
class SimDevice final : public Device {
 public:
  std::string_view name() const override { return "sim"; }
  MemoryKind memory() const override { return MemoryKind::kHost; }
  Result<Buffer> Allocate(int64_t bytes) override {
    return host_.Allocate(bytes);
  }
  Result<Stream> CreateStream(StreamPriority priority) override {
    return host_.CreateStream(priority);
  }
  void DestroyStream(Stream stream) noexcept override {
    host_.DestroyStream(stream);
  }
  Result<Event> CreateEvent() override { return host_.CreateEvent(); }
  void DestroyEvent(Event event) noexcept override {
    host_.DestroyEvent(event);
  }
  Status Record(Event event, Stream stream) override {
    return host_.Record(event, stream);
  }
  Status Wait(Stream stream, Event event) override {
    return host_.Wait(stream, event);
  }
  Result<bool> Query(Event event) override { return host_.Query(event); }
  Status HostWait(Event event) override { return host_.HostWait(event); }
  Status Synchronize(Stream stream) override {
    return host_.Synchronize(stream);
  }
  Status Poll() override { return host_.Poll(); }
  Status Upload(void* dst, const void* src, int64_t bytes) override {
    return host_.Upload(dst, src, bytes);
  }
  Status Zero(void* dst, int64_t bytes, Stream stream) override {
    return host_.Zero(dst, bytes, stream);
  }
  Status Copy(void* dst, const void* src, int64_t bytes,
              Stream stream) override {
    return host_.Copy(dst, src, bytes, stream);
  }
  Status Sum(void* dst, std::span<const void* const> addends, int64_t count,
             DType dtype, Stream stream) override {
    return internal::LaunchSum(dst, addends, count, dtype, stream);
  }
  Status GatherRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                    Stream stream) override {
    return internal::LaunchGatherRows(pairs, runs, stream);
  }
  Status AddRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                 Stream stream) override {
    return internal::LaunchAddRows(pairs, runs, stream);
  }
  Status FoldRows(std::span<const RowPair> pairs, RunList<FoldRun> runs,
                  Stream stream) override {
    return internal::LaunchFoldRows(pairs, runs, stream);
  }
  Status MergeAttention(const MergeRows& rows, RunList<CopyRun> runs,
                        Stream stream) override {
    return internal::LaunchMergeAttention(rows, runs, stream);
  }

 private:
  CpuDevice host_{{.poison_buffers = true}};
};

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_SIM_SIM_DEVICE_H_
