// Ranks that are processes with a GPU each, over NCCL.
#ifndef SKRULL_CUDA_NCCL_NCCL_POOL_H_
#define SKRULL_CUDA_NCCL_NCCL_POOL_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "skrull/cuda/communicator.h"
#include "skrull/cuda/first_failure.h"
#include "skrull/cuda/nccl/nccl_api.h"
#include "skrull/cuda/rendezvous.h"
#include "skrull/planner/layout.h"

namespace skrull::exec {

struct NcclPoolOptions {
  int32_t device = 0;  // the rank's CUDA device
  // How long NCCL may take to make a communicator, to register memory, to
  // enqueue a collective or to close.
  std::chrono::nanoseconds time_limit = std::chrono::seconds(60);
  // How often the watch looks for failures.
  std::chrono::nanoseconds poll_interval = std::chrono::milliseconds(20);
  // Registers the buffers of Allocate with NCCL, for its symmetric kernels and
  // copy engines.
  bool register_buffers = true;
};

// One rank's NCCL communicators: one of the whole pool, and one split from it
// for each block that is announced.
//
// NCCL tells nobody that a rank failed or is gone; what waits for it on a GPU
// waits for ever. So a pool has a control plane beside it, of the same ranks:
// usually a HostPool. It compares announcements, notices ranks that are gone
// and carries aborts, and a thread here, the watch, aborts the NCCL
// communicators once the control plane or any of them has failed: every rank's
// streams run on, whatever its own threads wait for. Agreement on plans is the
// control plane's.
//
// Calls are non-blocking as NCCL's communicators are; what NCCL takes longer
// for is waited for up to the time limit. Results of a reduce-scatter are the
// same bits for the same inputs as long as NCCL picks the same algorithm: same
// machines, same NCCL, same environment. They are not those of other pools.
//
// Thread-safe as communicator.h says. Create, Allocate and the end of a buffer
// leave the rank's device as the calling thread's current one.
class NcclPool final : public CommunicatorSet {
 public:
  // Collective over the pool. `control` tells rank and size; a failure here
  // aborts it. `rendezvous` carries NCCL's unique id. `api` and `control` must
  // outlive the pool. Errors: those of `rendezvous`; DEADLINE_EXCEEDED if NCCL
  // has not connected the ranks in time; COMM_FAILED, DEVICE_ERROR or
  // INVALID_ARGUMENT with NCCL's words; the control plane's failure.
  static Result<std::unique_ptr<NcclPool>> Create(
      const NcclPoolOptions& options, NcclApi* api, CommunicatorSet* control,
      const Rendezvous& rendezvous);

  // Closes the communicators, or aborts them if the pool failed or they do not
  // close in time. REQUIRES: no buffer is left, no collective is running unless
  // the pool failed.
  ~NcclPool() override;

  int32_t rank() const override { return control_->rank(); }
  int32_t size() const override { return control_->size(); }
  Status Announce(std::span<const Block> blocks) override;
  Result<Communicator*> Find(Block block) override;
  Status Poll() override;
  void Abort(const Status& cause) noexcept override;

 private:
  class BlockCommunicator;

  // A communicator of NCCL; null once it was aborted or closed.
  struct Handle {
    Block block;
    NcclComm comm = nullptr;  // protected by mutex_
  };

  NcclPool(const NcclPoolOptions& options, NcclApi* api,
           CommunicatorSet* control);

  Status Connect(const Rendezvous& rendezvous);
  Status Split(std::span<const Block> blocks);

  // Calls NCCL on a communicator and waits until it is ready again. A failure
  // fails the pool. `what` is for messages.
  template <class F>
  Status Call(Handle* handle, const std::string& what, const F& call);
  // The same with the lock held, which it gives up while it waits; without
  // failing the pool.
  Status Settle(std::unique_lock<std::mutex>* lock, Handle* handle,
                const std::string& what, NcclResult result);
  Status ErrorOf(const std::string& what, NcclResult result);

  // Keeps the first failure and aborts all of NCCL's communicators; `tell` the
  // control plane.
  void Fail(const Status& status, bool tell) noexcept;
  void Close() noexcept;
  void Watch();

  const NcclPoolOptions options_;
  NcclApi* const api_;
  CommunicatorSet* const control_;
  FirstFailure failure_;

  std::mutex mutex_;  // also: one thread at a time calls NCCL
  std::condition_variable stop_;
  bool stopping_ = false;  // protected by mutex_
  // The pool's own first, then splits in the order of their making. Protected
  // by mutex_; the handles stay where they are.
  std::vector<std::unique_ptr<Handle>> handles_;

  // Used by the thread that announces.
  std::set<Block> announced_;
  std::map<Block, std::unique_ptr<BlockCommunicator>> communicators_;

  std::thread watch_;  // last: it uses the rest
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_NCCL_NCCL_POOL_H_
