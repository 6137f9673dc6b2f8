// N ranks in one process, each a thread or a few: for tests, and for CPU
// trainers that run all ranks in one process.
#ifndef SKRULL_CUDA_IN_PROCESS_IN_PROCESS_POOL_H_
#define SKRULL_CUDA_IN_PROCESS_IN_PROCESS_POOL_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "skrull/cuda/communicator.h"
#include "skrull/cuda/first_failure.h"
#include "skrull/cuda/in_process/meeting.h"
#include "skrull/planner/layout.h"

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
  class RankSet;

  // Enters and compares what the ranks brought. OK: the visit goes on.
  Status Compare(Visit* visit, int32_t first_rank, int32_t size,
                 Contribution contribution);
  Meeting* MeetingOf(Block block);
  void AbortBy(int32_t rank, const Status& cause);
  void Fail(const Status& status);

  const int32_t size_;
  const InProcessOptions options_;
  FirstFailure failure_;
  Meeting control_;  // of all ranks, outside streams
  std::mutex mutex_;
  std::map<Block, std::unique_ptr<Meeting>> meetings_;  // protected by mutex_
  std::vector<std::unique_ptr<RankSet>> ranks_;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_IN_PROCESS_IN_PROCESS_POOL_H_
