// What the code of a simulated CUDA thread can ask for. cuda_builtins.h gives
// most of it CUDA's names; primitives with a portable body, such as a matrix
// product of a warp, use it themselves.
//
// All functions act for the calling thread. REQUIRES: it runs in a launch
// (launch.h).
#ifndef SKRULL_CUDA_SIM_THREAD_H_
#define SKRULL_CUDA_SIM_THREAD_H_

#include <array>
#include <cstddef>
#include <memory>
#include <source_location>

namespace skrull::exec::sim {

inline constexpr int kWarpSize = 32;

// What is done where lanes meet: arguments[l] is of lane l, or null if it did
// not come.
using Combine = void (*)(void* const* arguments);

// __syncthreads: waits until all threads of the block that have not returned
// are here. Fails the launch if some are at another barrier.
void SyncBlock(const std::source_location& where);

// Waits until all of `lanes` that have not returned are here, with the same
// `lanes` and `combine`; then the last calls combine, if it is not null, and
// all go on. Fails the launch if the calling lane is not one of `lanes`, or if
// they differ.
void MeetLanes(unsigned lanes, void* argument, Combine combine,
               const std::source_location& where);

// MeetLanes with the type of the arguments. `combine` captures nothing:
//
//   struct Sum { float in, out; };
//   Sum sum{x, 0};
//   CombineLanes(~0U, &sum, [](const std::array<Sum*, kWarpSize>& lanes)
//   {...});
template <class Argument, class Function>
void CombineLanes(
    unsigned lanes, Argument* argument, Function,
    const std::source_location& where = std::source_location::current()) {
  MeetLanes(
      lanes, argument,
      [](void* const* arguments) {
        std::array<Argument*, kWarpSize> typed;
        for (int lane = 0; lane < kWarpSize; ++lane) {
          typed[static_cast<size_t>(lane)] =
              static_cast<Argument*>(arguments[lane]);
        }
        Function()(typed);
      },
      where);
}

int Lane();  // in the warp

// Fails the launch if an access of `bytes` at `address` would be misaligned on
// a GPU.
void RequireAligned(const void* address, size_t bytes);

// The block's dynamic shared memory, aligned to 256 bytes.
void* DynamicShared();

// Of the thread, null when it starts. For state that hardware keeps for a
// thread, such as copies under way.
std::shared_ptr<void>& ThreadStorage();

}  // namespace skrull::exec::sim

#endif  // SKRULL_CUDA_SIM_THREAD_H_
