// From the numbers of a problem to the instances of a kernel.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_DISPATCH_CUH_
#define SKRULL_CUDA_ATTENTION_CUDA_DISPATCH_CUH_

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/kernels/mma.cuh"
#include "skrull/cuda/kernels/portable.cuh"
#include "skrull/cuda/status.h"

namespace skrull::exec::flash {

// Calls launch(T{}, dim) with a type of mma.cuh and head_dim as an
// std::integral_constant. REQUIRES: a problem that is supported.
template <class Launch>
Status Dispatch(const AttentionProblem& problem, const Launch& launch) {
  const auto with_dim = [&](auto type) -> Status {
    if (problem.head_dim == 64) {
      return launch(type, std::integral_constant<int, 64>{});
    }
    return launch(type, std::integral_constant<int, 128>{});
  };
  if (problem.dtype == DType::kBFloat16) return with_dim(kernels::Bf16{});
  return with_dim(kernels::Fp16{});
}

// Sets `grid` to count * heads blocks. Errors: UNSUPPORTED if that is more than
// a grid has, 2^31 - 1.
inline Status MakeGrid(int64_t count, int32_t heads, dim3* grid) {
  const int64_t most = std::numeric_limits<int32_t>::max();
  if (count > most / heads) {
    return {StatusCode::kUnsupported,
            std::to_string(count) + " tiles of " + std::to_string(heads) +
                " heads are more blocks than a grid has"};
  }
  *grid = dim3(static_cast<unsigned>(count * heads));
  return {};
}

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_DISPATCH_CUH_
