// Launches where there is no nvcc; portable.cuh says when.
#ifndef SKRULL_CUDA_KERNELS_LAUNCH_HOST_H_
#define SKRULL_CUDA_KERNELS_LAUNCH_HOST_H_

#include <cstdint>
#include <tuple>
#include <utility>

#include "skrull/cuda/device.h"
#include "skrull/cuda/sim/cuda_builtins.h"
#include "skrull/cuda/sim/launch.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::internal {

template <class... Parameters, class... Arguments>
Status LaunchKernel(const char* name, void (*kernel)(Parameters...), dim3 grid,
                    dim3 block, int64_t shared_bytes, Stream stream,
                    Arguments&&... arguments) {
  // Copies, as a launch makes them: the caller's are gone when it runs.
  std::tuple<Parameters...> copies(std::forward<Arguments>(arguments)...);
  return sim::RunOnHost(
      {.name = name,
       .grid = grid,
       .block = block,
       .shared_bytes = shared_bytes,
       .kernel = [kernel, copies] { std::apply(kernel, copies); }},
      stream);
}

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_KERNELS_LAUNCH_HOST_H_
