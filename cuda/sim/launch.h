// Launches of kernels on the CPU.
#ifndef SKRULL_CUDA_SIM_LAUNCH_H_
#define SKRULL_CUDA_SIM_LAUNCH_H_

#include <cstdint>
#include <functional>

#include "skrull/cuda/device.h"
#include "skrull/cuda/sim/vector_types.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::sim {

// The least that a GPU which runs this project's code gives a block: sm_80's
// also runs on sm_86 and sm_89, and these and sm_120 have 99 KiB, not its 163.
inline constexpr int64_t kMaxSharedBytes = int64_t{99} << 10;
inline constexpr int kMaxThreads = 1024;

// Blocks and threads of later launches run in an order drawn from `seed`, 0 at
// first. Of the whole process; any thread.
void SetOrderSeed(uint64_t seed);

struct Launch {
  const char* name = "";  // of the kernel
  dim3 grid;
  dim3 block;
  int64_t shared_bytes = 0;      // dynamic
  std::function<void()> kernel;  // called once by each thread
};

// Checks the launch as CUDA does. On a stream, which is one of a device with
// host memory, it enqueues the launch; else, with a null handle, it runs it.
//
// Errors: DEVICE_ERROR for a launch that CUDA would refuse; INTERNAL for one
// that fails while it runs (block.h says how), which on a stream is the
// device's failure.
Status RunOnHost(Launch launch, Stream stream);

}  // namespace skrull::exec::sim

#endif  // SKRULL_CUDA_SIM_LAUNCH_H_
