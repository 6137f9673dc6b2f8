// cuDNN graphs through cudnn-frontend. The only source that includes its
// headers, which take a minute to compile.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_FRONTEND_GRAPHS_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_FRONTEND_GRAPHS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "skrull/cuda/attention/cudnn/cudnn_api.h"
#include "skrull/cuda/attention/cudnn/graph_key.h"
#include "skrull/cuda/attention/cudnn/handle_pool.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::cudnn {

// What graphs are made for: the calling thread's device, or one that is
// described by what cuDNN would tell of it. Those of a description do not run.
struct GraphTarget {
  HandlePool* handles = nullptr;  // null: described. Outlives the graphs
  std::string device_properties;  // JSON
  int32_t sm = 0;
};

// "cudnn-frontend 1.32.0": part of a plan's name, which its bytes depend on.
std::string FrontendVersion();

// Can cuDNN compute it? Faster than building, and needs no driver that works.
// Errors: those of BuildGraph.
Status CheckGraph(const GraphKey& key, const GraphTarget& target);

// As CudnnApi::Build and Load.
Result<std::unique_ptr<Graph>> BuildGraph(const GraphKey& key,
                                          const GraphTarget& target);
Result<std::unique_ptr<Graph>> LoadGraph(const std::string& bytes,
                                         const GraphTarget& target);

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_FRONTEND_GRAPHS_H_
