// N ranks in one process on one device: virtual ranks, to run a plan of many
// GPUs on a single one.
#ifndef SKRULL_CUDA_IN_PROCESS_DEVICE_POOL_H_
#define SKRULL_CUDA_IN_PROCESS_DEVICE_POOL_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "skrull/cuda/communicator.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/in_process/rank_meetings.h"

namespace skrull::exec {

struct DevicePoolOptions {
  // How long a rank's host thread waits in a call for those of the others.
  std::chrono::nanoseconds time_limit = std::chrono::seconds(60);
};

// Each rank is a host thread. Collectives are copies and sums of the device, on
// the ranks' streams, ordered by events: send is read when all ranks' streams
// have come there, and overwritten by what follows only when all have read.
// They work on any device, and know nothing else of it.
//
// A call of a collective waits on the host until all ranks of the block have
// made it, since an event can only be waited for once it is recorded; it never
// waits for work of the device. Ranks that issue collectives in one order, as
// communicator.h demands, do not wait in a circle.
//
// Sums add the ranks in ascending order, as InProcessPool's do: the same bits.
// One failure ends the pool, as there. A failure of the device is that of all
// ranks, for they share it.
//
// Thread-safe as communicator.h says, for each rank.
class DevicePool {
 public:
  // `device` outlives the pool. Streams are its own. REQUIRES: ranks >= 1.
  // Blocks of more than kMaxAddends ranks are refused when they are announced:
  // UNSUPPORTED.
  DevicePool(int32_t ranks, Device* device,
             const DevicePoolOptions& options = {});
  // REQUIRES: the work of all collectives is done.
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // They live as long as the pool. REQUIRES: 0 <= rank < ranks.
  CommunicatorSet* communicators(int32_t rank);
  StepAgreement* agreement(int32_t rank);

 private:
  class BlockCommunicator;

  internal::RankMeetings meetings_;
  std::vector<std::unique_ptr<internal::RankSet>> ranks_;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_IN_PROCESS_DEVICE_POOL_H_
