// A device that passes every call on to another: what tests derive devices from
// that change a few.
#ifndef SKRULL_TESTS_CUDA_FORWARDING_DEVICE_H_
#define SKRULL_TESTS_CUDA_FORWARDING_DEVICE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "skrull/cuda/device.h"

namespace skrull::exec::testing {

class ForwardingDevice : public Device {
 public:
  // `device` outlives it.
  explicit ForwardingDevice(Device* device) : device_(device) {}

  std::string_view name() const override { return device_->name(); }
  MemoryKind memory() const override { return device_->memory(); }
  Status AsCurrent(const std::function<Status()>& call) override {
    return device_->AsCurrent(call);
  }
  Result<Buffer> Allocate(int64_t bytes) override {
    return device_->Allocate(bytes);
  }
  Result<Stream> CreateStream(StreamPriority priority) override {
    return device_->CreateStream(priority);
  }
  void DestroyStream(Stream stream) noexcept override {
    device_->DestroyStream(stream);
  }
  Result<Event> CreateEvent() override { return device_->CreateEvent(); }
  void DestroyEvent(Event event) noexcept override {
    device_->DestroyEvent(event);
  }
  Status Record(Event event, Stream stream) override {
    return device_->Record(event, stream);
  }
  Status Wait(Stream stream, Event event) override {
    return device_->Wait(stream, event);
  }
  Result<bool> Query(Event event) override { return device_->Query(event); }
  Status HostWait(Event event) override { return device_->HostWait(event); }
  Status Synchronize(Stream stream) override {
    return device_->Synchronize(stream);
  }
  Status Poll() override { return device_->Poll(); }
  Status Upload(void* dst, const void* src, int64_t bytes) override {
    return device_->Upload(dst, src, bytes);
  }
  Status Zero(void* dst, int64_t bytes, Stream stream) override {
    return device_->Zero(dst, bytes, stream);
  }
  Status Copy(void* dst, const void* src, int64_t bytes,
              Stream stream) override {
    return device_->Copy(dst, src, bytes, stream);
  }
  Status Sum(void* dst, std::span<const void* const> addends, int64_t count,
             DType dtype, Stream stream) override {
    return device_->Sum(dst, addends, count, dtype, stream);
  }
  Status GatherRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                    Stream stream) override {
    return device_->GatherRows(pairs, runs, stream);
  }
  Status AddRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                 Stream stream) override {
    return device_->AddRows(pairs, runs, stream);
  }
  Status FoldRows(std::span<const RowPair> pairs, RunList<FoldRun> runs,
                  Stream stream) override {
    return device_->FoldRows(pairs, runs, stream);
  }
  Status MergeAttention(const MergeRows& rows, RunList<CopyRun> runs,
                        Stream stream) override {
    return device_->MergeAttention(rows, runs, stream);
  }

 private:
  Device* const device_;
};

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_FORWARDING_DEVICE_H_
