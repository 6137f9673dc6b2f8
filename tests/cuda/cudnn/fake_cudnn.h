// cuDNN on the host: graphs that read what real ones are told, and compute it
// in float64; forward by dense attention, backward as the formulas read, from
// the O and LSE that they are given.
#ifndef SKRULL_TESTS_CUDA_CUDNN_FAKE_CUDNN_H_
#define SKRULL_TESTS_CUDA_CUDNN_FAKE_CUDNN_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "skrull/cuda/attention/cudnn/cudnn_api.h"

namespace skrull::exec::cudnn::testing {

// Thread-safe; graphs must not outlive it. Works at once where a stream's
// handle is null, else on its HostQueue.
class FakeCudnn final : public CudnnApi {
 public:
  DeviceInfo device{.ordinal = 0,
                    .sm = 90,
                    .cudnn_version = 91900,
                    .fingerprint = "fake sm90"};
  // Called by Build, to fail or to wait in it.
  std::function<Status(const GraphKey&)> on_build;

  MemoryKind memory() const override { return MemoryKind::kHost; }
  Result<DeviceInfo> CurrentDevice() override { return device; }
  Result<std::unique_ptr<Graph>> Build(const GraphKey& key) override;
  Result<std::unique_ptr<Graph>> Load(const std::string& bytes) override;
  Status WriteSegmentArrays(const SegmentArrays& arrays,
                            Stream stream) override;
  Status CopyRows(const Tensor& dst, const Tensor& src, Stream stream) override;

  // What a graph found wrong with its arguments.
  void AddFault(const std::string& fault);
  std::vector<std::string> faults();
  std::vector<GraphKey> built();
  int loads() const { return loads_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> faults_;        // protected by mutex_
  std::vector<GraphKey> built_;            // protected by mutex_
  std::map<std::string, GraphKey> saved_;  // protected by mutex_
  std::atomic<int> loads_ = 0;
};

}  // namespace skrull::exec::cudnn::testing

#endif  // SKRULL_TESTS_CUDA_CUDNN_FAKE_CUDNN_H_
