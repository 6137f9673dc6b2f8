// N ranks in one process, each a thread or a few: for tests, and for CPU
// trainers that run all ranks in one process.
#ifndef SKRULL_CUDA_IN_PROCESS_IN_PROCESS_POOL_H_
#define SKRULL_CUDA_IN_PROCESS_IN_PROCESS_POOL_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "skrull/cuda/communicator.h"
#include "skrull/cuda/in_process/rank_meetings.h"

namespace skrull::exec {

struct InProcessOptions {
  // How long a rank waits in a collective for the others.
  std::chrono::nanoseconds time_limit = std::chrono::seconds(60);
  // Fills buffers of Allocate with NaN, so that reading what nobody wrote
  // shows.
  bool poison_buffers = false;
};

// Collectives are copies between the ranks' host memory, run by the ranks'
// streams, which wait there for each other. Sums add the ranks in ascending
// order in the accumulator's type and round once. One failure ends the pool:
// every waiting and every later collective, announcement and agreement of every
// rank returns it. Announcements and agreements that differ between ranks are
// FAILED_PRECONDITION on all of them and end nothing.
//
// Thread-safe as communicator.h says, for each rank.
class InProcessPool {
 public:
  // REQUIRES: ranks >= 1.
  explicit InProcessPool(int32_t ranks, const InProcessOptions& options = {});
  ~InProcessPool();  // REQUIRES: no collective is running.
  InProcessPool(const InProcessPool&) = delete;
  InProcessPool& operator=(const InProcessPool&) = delete;

  // They live as long as the pool. REQUIRES: 0 <= rank < ranks.
  CommunicatorSet* communicators(int32_t rank);
  StepAgreement* agreement(int32_t rank);

 private:
  class BlockCommunicator;

  internal::RankMeetings meetings_;
  std::vector<std::unique_ptr<internal::RankSet>> ranks_;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_IN_PROCESS_IN_PROCESS_POOL_H_
