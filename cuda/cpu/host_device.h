// A Device whose memory is the host's. Provides memory and row kernels; derived
// classes provide streams and events.
#ifndef SKRULL_CUDA_CPU_HOST_DEVICE_H_
#define SKRULL_CUDA_CPU_HOST_DEVICE_H_

#include <cstdint>
#include <span>

#include "skrull/cuda/device.h"
#include "skrull/cuda/first_failure.h"
#include "skrull/cuda/host_queue.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

struct HostDeviceOptions {
  // Fills new buffers with NaN of every DType, so that reading what nobody
  // wrote shows. Costs a pass over each buffer.
  bool poison_buffers = false;
};

class HostDevice : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options) : options_(options) {}

  MemoryKind memory() const final { return MemoryKind::kHost; }
  Status AsCurrent(const std::function<Status()>& call) final { return call(); }
  Result<Buffer> Allocate(int64_t bytes) final;
  Status Poll() final { return failure_.Get(); }
  Status Upload(void* dst, const void* src, int64_t bytes) final;
  Status Zero(void* dst, int64_t bytes, Stream stream) final;
  Status Copy(void* dst, const void* src, int64_t bytes, Stream stream) final;
  Status Sum(void* dst, std::span<const void* const> addends, int64_t count,
             DType dtype, Stream stream) final;
  Status GatherRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                    Stream stream) final;
  Status AddRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                 Stream stream) final;
  Status FoldRows(std::span<const RowPair> pairs, RunList<FoldRun> runs,
                  Stream stream) final;
  Status MergeAttention(const MergeRows& rows, RunList<CopyRun> runs,
                        Stream stream) final;

 protected:
  // Runs a stream's next task and keeps its failure. Never throws.
  void RunTask(const HostTask& task) noexcept;

 private:
  const HostDeviceOptions options_;
  FirstFailure failure_;
};

// Memory of the host with 256-byte alignment, outside any device. Errors:
// OUT_OF_MEMORY; INVALID_ARGUMENT if bytes < 0.
Result<Buffer> AllocateHostMemory(int64_t bytes);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CPU_HOST_DEVICE_H_
