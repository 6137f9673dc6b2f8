#include "skrull/cuda/gpu/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "skrull/cuda/device.h"
#include "skrull/cuda/gpu/cuda_call.h"
#include "skrull/cuda/kernels/row_kernels.h"
#include "skrull/cuda/kernels/sum.h"

namespace skrull::exec {
namespace {

using internal::CudaStatus;
using internal::CurrentGpu;

// Calls a function of the runtime on this device's GPU: a Status.
#define SKRULL_CUDA_CALL(function, ...) \
  Call(#function, [&] { return function(__VA_ARGS__); })

// What the pool keeps when the work on the device has ended. A step's lists of
// runs, which are allocated in each step, fit; gathered rows, which are kept
// from step to step, go back to the trainer when they are freed.
constexpr uint64_t kKeptBytes = uint64_t{64} << 20;

cudaStream_t Of(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}
cudaEvent_t Of(Event event) { return static_cast<cudaEvent_t>(event.handle); }

// What a query returned, where work under way is no error; nor is it one that
// the next who asks for the last error is to be told.
cudaError_t WithoutNotReady(cudaError_t error) {
  if (error != cudaErrorNotReady) return error;
  (void)cudaGetLastError();
  return cudaSuccess;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(int32_t ordinal, bool poison_buffers)
      : ordinal_(ordinal), poison_buffers_(poison_buffers) {}
  ~CudaDevice() override;

  // Before anything else, once.
  Status Open();

  std::string_view name() const override { return "cuda"; }
  MemoryKind memory() const override { return MemoryKind::kCuda; }
  Status AsCurrent(const std::function<Status()>& call) override;
  Result<Buffer> Allocate(int64_t bytes) override;
  Result<Stream> CreateStream(StreamPriority priority) override;
  void DestroyStream(Stream stream) noexcept override;
  Result<Event> CreateEvent() override;
  void DestroyEvent(Event event) noexcept override;
  Status Record(Event event, Stream stream) override;
  Status Wait(Stream stream, Event event) override;
  Result<bool> Query(Event event) override;
  Status HostWait(Event event) override;
  Status Synchronize(Stream stream) override;
  Status Poll() override;
  Status Upload(void* dst, const void* src, int64_t bytes) override;
  Status Zero(void* dst, int64_t bytes, Stream stream) override;
  Status Copy(void* dst, const void* src, int64_t bytes,
              Stream stream) override;
  Status Sum(void* dst, std::span<const void* const> addends, int64_t count,
             DType dtype, Stream stream) override;
  Status GatherRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                    Stream stream) override;
  Status AddRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                 Stream stream) override;
  Status FoldRows(std::span<const RowPair> pairs, RunList<FoldRun> runs,
                  Stream stream) override;
  Status MergeAttention(const MergeRows& rows, RunList<CopyRun> runs,
                        Stream stream) override;

 private:
  template <class Function>
  Status Call(const char* name, const Function& function) {
    return AsCurrent([&] { return CudaStatus(function(), name, ordinal_); });
  }
  Status FillAndWait(void* data, int value, int64_t bytes);

  const int32_t ordinal_;
  const bool poison_buffers_;
  // Of allocations and uploads alone, so that waiting for it waits for nothing
  // else. Both are constant after Open().
  cudaStream_t own_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
};

CudaDevice::~CudaDevice() {
  if (pool_ != nullptr) (void)SKRULL_CUDA_CALL(cudaMemPoolDestroy, pool_);
  if (own_ != nullptr) (void)SKRULL_CUDA_CALL(cudaStreamDestroy, own_);
}

Status CudaDevice::Open() {
  SKRULL_EXEC_RETURN_IF_ERROR(SKRULL_CUDA_CALL(cudaStreamCreateWithFlags, &own_,
                                               cudaStreamNonBlocking));
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = ordinal_;
  SKRULL_EXEC_RETURN_IF_ERROR(
      SKRULL_CUDA_CALL(cudaMemPoolCreate, &pool_, &properties));
  uint64_t kept = kKeptBytes;
  return SKRULL_CUDA_CALL(cudaMemPoolSetAttribute, pool_,
                          cudaMemPoolAttrReleaseThreshold, &kept);
}

Status CudaDevice::AsCurrent(const std::function<Status()>& call) {
  const CurrentGpu gpu(ordinal_);
  if (gpu.error() != cudaSuccess) {
    return CudaStatus(gpu.error(), "cudaSetDevice", ordinal_);
  }
  return call();
}

Result<Buffer> CudaDevice::Allocate(int64_t bytes) {
  if (bytes < 0) {
    return InvalidArgument("a buffer of " + std::to_string(bytes) + " bytes");
  }
  void* data = nullptr;
  const auto size = static_cast<size_t>(std::max(bytes, int64_t{1}));
  Status status =
      SKRULL_CUDA_CALL(cudaMallocFromPoolAsync, &data, size, pool_, own_);
  if (!status.ok()) {
    return Status(status.code(),
                  std::to_string(bytes) + " bytes: " + status.message());
  }
  Buffer buffer(data, bytes, [this](void* p) {
    (void)SKRULL_CUDA_CALL(cudaFreeAsync, p, own_);
  });
  // Other streams may use it only when the allocation is done.
  SKRULL_EXEC_RETURN_IF_ERROR(
      poison_buffers_ ? FillAndWait(data, 0xFF, bytes)  // a NaN of every type
                      : SKRULL_CUDA_CALL(cudaStreamSynchronize, own_));
  return buffer;
}

Status CudaDevice::FillAndWait(void* data, int value, int64_t bytes) {
  SKRULL_EXEC_RETURN_IF_ERROR(SKRULL_CUDA_CALL(
      cudaMemsetAsync, data, value, static_cast<size_t>(bytes), own_));
  return SKRULL_CUDA_CALL(cudaStreamSynchronize, own_);
}

Result<Stream> CudaDevice::CreateStream(StreamPriority priority) {
  int least = 0;
  int greatest = 0;
  SKRULL_EXEC_RETURN_IF_ERROR(
      SKRULL_CUDA_CALL(cudaDeviceGetStreamPriorityRange, &least, &greatest));
  cudaStream_t stream = nullptr;
  SKRULL_EXEC_RETURN_IF_ERROR(SKRULL_CUDA_CALL(
      cudaStreamCreateWithPriority, &stream, cudaStreamNonBlocking,
      priority == StreamPriority::kHigh ? greatest : least));
  return Stream{stream};
}

void CudaDevice::DestroyStream(Stream stream) noexcept {
  (void)SKRULL_CUDA_CALL(cudaStreamSynchronize, Of(stream));
  (void)SKRULL_CUDA_CALL(cudaStreamDestroy, Of(stream));
}

Result<Event> CudaDevice::CreateEvent() {
  cudaEvent_t event = nullptr;
  // A host that waits for it sleeps: steps take long, and cores are needed.
  SKRULL_EXEC_RETURN_IF_ERROR(
      SKRULL_CUDA_CALL(cudaEventCreateWithFlags, &event,
                       cudaEventDisableTiming | cudaEventBlockingSync));
  return Event{event};
}

void CudaDevice::DestroyEvent(Event event) noexcept {
  (void)SKRULL_CUDA_CALL(cudaEventDestroy, Of(event));
}

Status CudaDevice::Record(Event event, Stream stream) {
  return SKRULL_CUDA_CALL(cudaEventRecord, Of(event), Of(stream));
}

Status CudaDevice::Wait(Stream stream, Event event) {
  return SKRULL_CUDA_CALL(cudaStreamWaitEvent, Of(stream), Of(event), 0);
}

Result<bool> CudaDevice::Query(Event event) {
  bool is_complete = false;
  const Status asked = Call("cudaEventQuery", [&] {
    const cudaError_t error = cudaEventQuery(Of(event));
    is_complete = error == cudaSuccess;
    return WithoutNotReady(error);
  });
  // After a failure of the context nothing runs any more: all work counts as
  // skipped, and Poll() tells. Who waits for an event must not wait on.
  if (!asked.ok() && !Poll().ok()) return true;
  SKRULL_EXEC_RETURN_IF_ERROR(asked);
  return is_complete;
}

Status CudaDevice::HostWait(Event event) {
  return SKRULL_CUDA_CALL(cudaEventSynchronize, Of(event));
}

Status CudaDevice::Synchronize(Stream stream) {
  return SKRULL_CUDA_CALL(cudaStreamSynchronize, Of(stream));
}

// After a failure of the context every call returns it; this one changes
// nothing.
Status CudaDevice::Poll() {
  return Call("cudaStreamQuery",
              [&] { return WithoutNotReady(cudaStreamQuery(own_)); });
}

Status CudaDevice::Upload(void* dst, const void* src, int64_t bytes) {
  if (bytes == 0) return {};
  SKRULL_EXEC_RETURN_IF_ERROR(SKRULL_CUDA_CALL(cudaMemcpyAsync, dst, src,
                                               static_cast<size_t>(bytes),
                                               cudaMemcpyHostToDevice, own_));
  return SKRULL_CUDA_CALL(cudaStreamSynchronize, own_);
}

Status CudaDevice::Zero(void* dst, int64_t bytes, Stream stream) {
  if (bytes == 0) return {};
  return SKRULL_CUDA_CALL(cudaMemsetAsync, dst, 0, static_cast<size_t>(bytes),
                          Of(stream));
}

Status CudaDevice::Copy(void* dst, const void* src, int64_t bytes,
                        Stream stream) {
  if (bytes == 0) return {};
  return SKRULL_CUDA_CALL(cudaMemcpyAsync, dst, src, static_cast<size_t>(bytes),
                          cudaMemcpyDeviceToDevice, Of(stream));
}

Status CudaDevice::Sum(void* dst, std::span<const void* const> addends,
                       int64_t count, DType dtype, Stream stream) {
  return AsCurrent(
      [&] { return internal::LaunchSum(dst, addends, count, dtype, stream); });
}

Status CudaDevice::GatherRows(std::span<const RowPair> pairs,
                              RunList<CopyRun> runs, Stream stream) {
  return AsCurrent(
      [&] { return internal::LaunchGatherRows(pairs, runs, stream); });
}

Status CudaDevice::AddRows(std::span<const RowPair> pairs,
                           RunList<CopyRun> runs, Stream stream) {
  return AsCurrent(
      [&] { return internal::LaunchAddRows(pairs, runs, stream); });
}

Status CudaDevice::FoldRows(std::span<const RowPair> pairs,
                            RunList<FoldRun> runs, Stream stream) {
  return AsCurrent(
      [&] { return internal::LaunchFoldRows(pairs, runs, stream); });
}

Status CudaDevice::MergeAttention(const MergeRows& rows, RunList<CopyRun> runs,
                                  Stream stream) {
  return AsCurrent(
      [&] { return internal::LaunchMergeAttention(rows, runs, stream); });
}

// The GPUs of the machine, at least one.
Result<int> CountGpus() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();
  int driver = 0;  // 0 stays where there is none
  (void)cudaDriverGetVersion(&driver);
  if (driver == 0) {
    return Status(StatusCode::kNotFound,
                  "no NVIDIA driver (libcuda.so.1) on this machine");
  }
  return Status(StatusCode::kNotFound,
                std::string("no usable GPU: ") +
                    (error == cudaSuccess ? "the driver has none"
                                          : cudaGetErrorString(error)) +
                    " (driver for CUDA " + std::to_string(driver / 1000) + "." +
                    std::to_string(driver % 1000 / 10) + ", built with " +
                    std::to_string(CUDART_VERSION / 1000) + "." +
                    std::to_string(CUDART_VERSION % 1000 / 10) + ")");
}

// Can this GPU run what this library has?
Status CheckGpu(int32_t ordinal) {
  int major = 0;
  int has_pools = 0;
  for (const auto& [attribute, value] :
       {std::pair(cudaDevAttrComputeCapabilityMajor, &major),
        std::pair(cudaDevAttrMemoryPoolsSupported, &has_pools)}) {
    SKRULL_EXEC_RETURN_IF_ERROR(
        CudaStatus(cudaDeviceGetAttribute(value, attribute, ordinal),
                   "cudaDeviceGetAttribute", ordinal));
  }
  if (major < 8) {
    return {StatusCode::kUnsupported,
            "GPU " + std::to_string(ordinal) + " has compute capability " +
                std::to_string(major) + ".x, below 8.0"};
  }
  if (has_pools == 0) {
    return {StatusCode::kUnsupported,
            "GPU " + std::to_string(ordinal) + " has no memory pools"};
  }
  return {};
}

}  // namespace

DeviceResult CreateCudaDevice(const DeviceOptions& options) {
  const Result<int> count = CountGpus();
  SKRULL_EXEC_RETURN_IF_ERROR(count.status());
  if (options.ordinal < 0 || options.ordinal >= *count) {
    return InvalidArgument("ordinal " + std::to_string(options.ordinal) +
                           " of " + std::to_string(*count) + " GPUs");
  }
  SKRULL_EXEC_RETURN_IF_ERROR(CheckGpu(options.ordinal));
  auto device =
      std::make_unique<CudaDevice>(options.ordinal, options.poison_buffers);
  SKRULL_EXEC_RETURN_IF_ERROR(device->Open());
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace skrull::exec
