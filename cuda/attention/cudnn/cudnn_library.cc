#include "skrull/cuda/attention/cudnn/cudnn_library.h"

#include <map>
#include <mutex>
#include <string>

#include "cuda_runtime_api.h"
#include "cudnn.h"
#include "skrull/cuda/attention/cudnn/frontend_graphs.h"
#include "skrull/cuda/attention/cudnn/handle_pool.h"
#include "skrull/cuda/attention/cudnn/refusal.h"
#include "skrull/cuda/gpu/cuda_call.h"

namespace skrull::exec::cudnn {
namespace {

using exec::internal::CudaStatus;
using exec::internal::CurrentOrdinal;

class Library final : public CudnnApi {
 public:
  MemoryKind memory() const override { return MemoryKind::kCuda; }

  Result<DeviceInfo> CurrentDevice() override {
    int32_t ordinal = 0;
    SKRULL_EXEC_RETURN_IF_ERROR(CurrentOrdinal(&ordinal));
    {
      const std::lock_guard lock(mutex_);
      const auto known = devices_.find(ordinal);
      if (known != devices_.end()) return known->second;
    }
    cudaDeviceProp properties;
    SKRULL_EXEC_RETURN_IF_ERROR(
        CudaStatus(cudaGetDeviceProperties(&properties, ordinal),
                   "cudaGetDeviceProperties", ordinal));
    int driver = 0;
    SKRULL_EXEC_RETURN_IF_ERROR(CudaStatus(cudaDriverGetVersion(&driver),
                                           "cudaDriverGetVersion", ordinal));
    DeviceInfo info;
    info.ordinal = ordinal;
    info.sm = 10 * properties.major + properties.minor;
    info.cudnn_version = static_cast<int64_t>(cudnnGetVersion());
    info.fingerprint =
        FrontendVersion() + ", cuDNN " + std::to_string(info.cudnn_version) +
        ", driver " + std::to_string(driver) + ", " + properties.name + ", sm" +
        std::to_string(info.sm) + ", " +
        std::to_string(properties.multiProcessorCount) + " SMs, " +
        std::to_string(properties.sharedMemPerBlockOptin) + " B shared, " +
        std::to_string(properties.l2CacheSize) + " B L2";
    const std::lock_guard lock(mutex_);
    return devices_[ordinal] = info;
  }

  Result<std::unique_ptr<Graph>> Build(const GraphKey& key) override {
    return BuildGraph(key, target_);
  }
  Result<std::unique_ptr<Graph>> Load(const std::string& bytes) override {
    return LoadGraph(bytes, target_);
  }

  Status WriteSegmentArrays(const SegmentArrays& arrays,
                            Stream stream) override {
    return LaunchSegmentArrays(arrays, stream);
  }

  Status CopyRows(const Tensor& dst, const Tensor& src,
                  Stream stream) override {
    int32_t ordinal = 0;
    SKRULL_EXEC_RETURN_IF_ERROR(CurrentOrdinal(&ordinal));
    // Heads next to each other are one run of bytes.
    const Strides strides = NormalStrides(dst);
    const int32_t copies = strides.head == dst.dim ? 1 : dst.heads;
    const int64_t width = int64_t{dst.heads} / copies * dst.dim;
    const int64_t size = SizeOf(dst.dtype);
    for (int32_t i = 0; i < copies; ++i) {
      const cudaError_t error = cudaMemcpy2DAsync(
          static_cast<char*>(dst.data) + i * strides.head * size,
          static_cast<size_t>(strides.row * size),
          static_cast<const char*>(src.data) + i * src.head_stride * size,
          static_cast<size_t>(src.row_stride * size),
          static_cast<size_t>(width * size), static_cast<size_t>(dst.rows),
          cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream.handle));
      SKRULL_EXEC_RETURN_IF_ERROR(
          CudaStatus(error, "cudaMemcpy2DAsync", ordinal));
    }
    return {};
  }

 private:
  HandlePool handles_;
  const GraphTarget target_{
      .handles = &handles_, .device_properties = "", .sm = 0};
  std::mutex mutex_;
  std::map<int32_t, DeviceInfo> devices_;  // protected by mutex_
};

}  // namespace

CudnnApi* CudnnLibrary() {
  static Library* const library = new Library;
  return library;
}

}  // namespace skrull::exec::cudnn
