// Graphs that were built, in memory and on disk.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_PLAN_CACHE_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_PLAN_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "skrull/cuda/attention/cudnn/cudnn_api.h"
#include "skrull/cuda/attention/cudnn/events.h"
#include "skrull/cuda/attention/cudnn/graph_key.h"
#include "skrull/cuda/attention/cudnn/plan_files.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::cudnn {

// One graph for each device and key, built once however many threads ask, while
// others get theirs. Buckets bound their number, so none is ever dropped. That
// cuDNN has no kernel for a key is kept too; other failures are tried again.
//
// Thread-safe. `api` and `events` outlive it.
class PlanCache {
 public:
  // `directory`: of plans on disk; empty for none.
  PlanCache(CudnnApi* api, const std::string& directory, Events* events);

  // The graph for the calling thread's device, which is `device`: from memory,
  // from disk, or built, and then written to disk. Lives as long as the cache.
  // Errors: those of CudnnApi::Build.
  Result<Graph*> Get(const DeviceInfo& device, const GraphKey& key);

 private:
  struct Entry {
    std::mutex building;
    // Protected by building.
    bool known = false;  // graph or status is what every caller gets
    Status status;
    std::unique_ptr<Graph> graph;
  };

  Result<std::unique_ptr<Graph>> Make(const DeviceInfo& device,
                                      const GraphKey& key);

  CudnnApi* const api_;
  const std::optional<PlanFiles> files_;
  Events* const events_;
  std::mutex mutex_;
  // Protected by mutex_; entries stay where they are.
  std::map<std::pair<int32_t, GraphKey>, std::unique_ptr<Entry>> entries_;
};

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_PLAN_CACHE_H_
