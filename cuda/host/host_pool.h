// Ranks that are processes on CPUs, on one machine or several: for CPU
// trainers, for tests, and as the control plane of ranks on GPUs.
#ifndef SKRULL_CUDA_HOST_HOST_POOL_H_
#define SKRULL_CUDA_HOST_HOST_POOL_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "skrull/cuda/communicator.h"
#include "skrull/cuda/host/links.h"
#include "skrull/cuda/rendezvous.h"
#include "skrull/planner/layout.h"

namespace skrull::exec {

struct HostPoolOptions {
  int32_t rank = 0;
  int32_t size = 1;
  // An address of this machine that the other ranks reach, name or number. The
  // port is picked, and closed again once all ranks are connected. Messages are
  // neither encrypted nor signed: use a network that the job trusts.
  std::string host = "127.0.0.1";
  // How long Create waits for connections, after the rendezvous.
  std::chrono::nanoseconds connect_limit = std::chrono::seconds(60);
  // How long a rank waits in a collective for the others.
  std::chrono::nanoseconds time_limit = std::chrono::seconds(60);
  // Fills buffers of Allocate with NaN, so that reading what nobody wrote
  // shows.
  bool poison_buffers = false;
};

// One rank's end of the pool: a TCP connection to each other rank and a thread
// that serves them. Collectives run on the stream's thread, over host memory;
// each rank sends every peer its part and adds what it gets in ascending order
// of the ranks, so the bits are those of InProcessPool.
//
// One failure ends the pool: every waiting and every later collective,
// announcement and agreement of every rank returns it. A peer whose process
// ends without destroying its pool is ABORTED, "rank 3 is gone", on all others
// at once, also while they compute (Poll tells); one whose machine vanishes,
// within 20 seconds. Announcements and agreements that differ between ranks are
// FAILED_PRECONDITION on all of them and end nothing.
//
// Thread-safe as communicator.h says.
class HostPool {
 public:
  // Collective: blocks until all ranks are connected. Errors: those of
  // ConnectMesh; OUT_OF_MEMORY if no thread starts.
  static Result<std::unique_ptr<HostPool>> Create(
      const HostPoolOptions& options, const Rendezvous& rendezvous);

  // Says goodbye: a rank that still waits for this one fails with ABORTED.
  // Takes a second at most. REQUIRES: no collective is running.
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // They live as long as the pool.
  CommunicatorSet* communicators();
  StepAgreement* agreement();

 private:
  class BlockCommunicator;
  class RankSet;

  HostPool(const HostPoolOptions& options, std::vector<Fd> connections);

  const HostPoolOptions options_;
  Links links_;
  std::unique_ptr<RankSet> set_;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_HOST_HOST_POOL_H_
