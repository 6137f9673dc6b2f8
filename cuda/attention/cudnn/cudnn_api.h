// What the backend needs of cuDNN and the CUDA runtime: as an interface that a
// test can fake where there is neither.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_CUDNN_API_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_CUDNN_API_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "skrull/cuda/attention/cudnn/graph_key.h"
#include "skrull/cuda/attention/cudnn/segment_arrays.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"
#include "skrull/cuda/tensor.h"

namespace skrull::exec::cudnn {

struct DeviceInfo {
  int32_t ordinal = 0;
  int32_t sm = 0;             // 10 * major + minor
  int64_t cudnn_version = 0;  // 91900 is 9.19.0
  // Names all that a plan is made for: device, driver, cuDNN. A plan of one
  // fingerprint runs on any device of the same.
  std::string fingerprint;
};

// Device memory of one execution.
struct GraphArguments {
  std::array<void*, kRoles> tensors = {};  // null: the graph does not have it
  SegmentArrays arrays;
  void* workspace = nullptr;  // of workspace_bytes(), 256-byte aligned
};

// A graph with its plan, for the device that it was built for. Thread-safe.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual int64_t workspace_bytes() const = 0;
  // The plan as bytes, for CudnnApi::Load. Errors: INTERNAL.
  virtual Result<std::string> Save() const = 0;
  // Enqueues it. Errors: DEVICE_ERROR.
  virtual Status Run(const GraphArguments& arguments, Stream stream) = 0;
};

// Thread-safe. The device is the calling thread's current one.
class CudnnApi {
 public:
  virtual ~CudnnApi() = default;

  // What all pointers are to.
  virtual MemoryKind memory() const = 0;

  // Errors: DEVICE_ERROR if there is none.
  virtual Result<DeviceInfo> CurrentDevice() = 0;

  // Blocks for about a second. Errors: PLAN_BUILD_FAILED with cuDNN's reason if
  // it has no kernel for the key; DEVICE_ERROR, OUT_OF_MEMORY.
  virtual Result<std::unique_ptr<Graph>> Build(const GraphKey& key) = 0;
  // From what Save gave on a device of the same fingerprint. Errors: INTERNAL
  // for any other bytes; DEVICE_ERROR, OUT_OF_MEMORY.
  virtual Result<std::unique_ptr<Graph>> Load(const std::string& bytes) = 0;

  // LaunchSegmentArrays.
  virtual Status WriteSegmentArrays(const SegmentArrays& arrays,
                                    Stream stream) = 0;
  // Enqueues dst := src. Shapes: both [rows, heads, dim] of one type; src is
  // dense. Errors: DEVICE_ERROR.
  virtual Status CopyRows(const Tensor& dst, const Tensor& src,
                          Stream stream) = 0;
};

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_CUDNN_API_H_
