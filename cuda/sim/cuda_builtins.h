// CUDA's keywords, variables and functions for kernels that run on the CPU, as
// far as this project's kernels use them. Included by kernels/portable.cuh;
// never together with a header of CUDA.
//
// __shared__ is missing on purpose: kernels take their shared memory by
// SKRULL_DYNAMIC_SHARED, which is poisoned and guarded.
#ifndef SKRULL_CUDA_SIM_CUDA_BUILTINS_H_
#define SKRULL_CUDA_SIM_CUDA_BUILTINS_H_

#include <array>
#include <cstddef>
#include <source_location>
#include <stdexcept>

#include "skrull/cuda/sim/thread.h"
#include "skrull/cuda/sim/vector_types.h"

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
// NOLINTEND(bugprone-reserved-identifier)

// Set before a thread goes on; kernels only read them.
inline constinit thread_local uint3 threadIdx{};
inline constinit thread_local uint3 blockIdx{};
inline constinit thread_local dim3 blockDim{};
inline constinit thread_local dim3 gridDim{};

namespace skrull::exec::sim {

// Each lane of `lanes` gives a value and gets that of lane `source`. Fails the
// launch if that one does not take part.
template <class T>
T Shuffle(unsigned lanes, T value, int source,
          const std::source_location& where) {
  struct Exchange {
    T value;
    int source;
    T result;
  };
  Exchange exchange{value, source, value};
  CombineLanes(
      lanes, &exchange,
      [](const std::array<Exchange*, kWarpSize>& lane) {
        for (Exchange* to : lane) {
          if (to == nullptr) continue;
          const Exchange* from = lane[static_cast<size_t>(to->source)];
          if (from == nullptr) {
            throw std::runtime_error(
                "a shuffle reads a lane that is not there");
          }
          to->result = from->value;
        }
      },
      where);
  return exchange.result;
}

}  // namespace skrull::exec::sim

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names
inline void __syncthreads(
    const std::source_location& where = std::source_location::current()) {
  skrull::exec::sim::SyncBlock(where);
}

inline void __syncwarp(
    unsigned lanes = ~0U,
    const std::source_location& where = std::source_location::current()) {
  skrull::exec::sim::MeetLanes(lanes, nullptr, nullptr, where);
}

// The shuffles are those of whole warps: CUDA's parameter `width` is left out.
template <class T>
T __shfl_sync(
    unsigned lanes, T value, int source,
    const std::source_location& where = std::source_location::current()) {
  return skrull::exec::sim::Shuffle(lanes, value, source & 31, where);
}

template <class T>
T __shfl_xor_sync(
    unsigned lanes, T value, int mask,
    const std::source_location& where = std::source_location::current()) {
  const int lane = skrull::exec::sim::Lane();
  return skrull::exec::sim::Shuffle(lanes, value, (lane ^ mask) & 31, where);
}

// A lane whose source would be past the warp gets its own value.
template <class T>
T __shfl_down_sync(
    unsigned lanes, T value, unsigned delta,
    const std::source_location& where = std::source_location::current()) {
  const int lane = skrull::exec::sim::Lane();
  const int source = lane + static_cast<int>(delta);
  return skrull::exec::sim::Shuffle(lanes, value, source < 32 ? source : lane,
                                    where);
}

inline unsigned __ballot_sync(
    unsigned lanes, int predicate,
    const std::source_location& where = std::source_location::current()) {
  struct Vote {
    bool yes;
    unsigned result;
  };
  Vote vote{predicate != 0, 0};
  skrull::exec::sim::CombineLanes(
      lanes, &vote,
      [](const std::array<Vote*, skrull::exec::sim::kWarpSize>& lane) {
        unsigned result = 0;
        for (size_t i = 0; i < lane.size(); ++i) {
          if (lane[i] != nullptr && lane[i]->yes) result |= 1U << i;
        }
        for (Vote* to : lane) {
          if (to != nullptr) to->result = result;
        }
      },
      where);
  return vote.result;
}

// NOLINTEND(bugprone-reserved-identifier)

#endif  // SKRULL_CUDA_SIM_CUDA_BUILTINS_H_
