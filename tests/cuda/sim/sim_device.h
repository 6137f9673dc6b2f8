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
#include "skrull/tests/cuda/forwarding_device.h"

namespace skrull::exec::testing {

// New buffers are poisoned. Thread-safe as Device.
class SimDevice final : public ForwardingDevice {
 public:
  SimDevice() : ForwardingDevice(&host_) {}

  std::string_view name() const override { return "sim"; }
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
