// How ranks exchange rows: a Communicator joins the ranks of one block, a
// CommunicatorSet holds one rank's communicators, a StepAgreement compares
// plans before the first collective of a step.
//
// The rule that keeps ranks from waiting for each other in a circle: all ranks
// issue collectives in one global order (executor.h says which), each from one
// thread and on one stream.
#ifndef SKRULL_CUDA_COMMUNICATOR_H_
#define SKRULL_CUDA_COMMUNICATOR_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"
#include "skrull/cuda/tensor.h"
#include "skrull/planner/layout.h"

namespace skrull::exec {

// Collectives are asynchronous on the stream. Every rank of the block must call
// the same ones with the same sizes in the same order. Arguments that differ
// are COMM_FAILED where the implementation can see them, on every rank of the
// block.
//
// A rank whose device failed still enters (see HostTask) and makes the others
// fail with ABORTED instead of waiting. Poll and Abort may be called from any
// thread, the rest from one thread at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int32_t rank() const = 0;  // in the block
  virtual int32_t size() const = 0;

  // Memory that collectives can use best, `bytes` >= 0, aligned to 256 bytes.
  // Collective, like the functions below: every rank calls it with the same
  // size in the same order. The communicator must outlive the buffer.
  virtual Result<Buffer> Allocate(int64_t bytes) = 0;

  // recv[r] := send of rank r, for every r. send: `bytes`; recv: size() *
  // `bytes`; they do not overlap.
  virtual Status AllGather(const void* send, void* recv, int64_t bytes,
                           Stream stream) = 0;

  // recv := sum over the ranks of their send[rank()]. send: size() * `count`
  // elements, recv: `count`; they do not overlap. The order of the additions is
  // fixed, so that equal inputs give equal bits.
  virtual Status ReduceScatter(const void* send, void* recv, int64_t count,
                               DType dtype, Stream stream) = 0;

  // recv := send of rank (rank() - 1 + size()) % size(): everything moves one
  // rank up. They do not overlap.
  virtual Status Shift(const void* send, void* recv, int64_t bytes,
                       Stream stream) = 0;

  // OK, or the failure of an earlier collective. Does not block.
  virtual Status Poll() = 0;

  // Releases every rank that waits in a collective of this communicator, here
  // and, where the implementation can, on the other ranks: they fail with
  // ABORTED and the cause. Later calls return the same. Does not block long.
  virtual void Abort(const Status& cause) noexcept = 0;
};

// The communicators of one rank of the pool.
class CommunicatorSet {
 public:
  virtual ~CommunicatorSet() = default;

  virtual int32_t rank() const = 0;  // in the pool
  virtual int32_t size() const = 0;

  // Creates what does not exist yet. Collective over the whole pool: every rank
  // calls it with the same blocks in the same order (RankPlan::blocks), also
  // those that are in none of them. May block until the others come.
  virtual Status Announce(std::span<const Block> blocks) = 0;

  // The announced communicator of a block that this rank is in. It lives as
  // long as the set. Errors: NOT_FOUND.
  virtual Result<Communicator*> Find(Block block) = 0;

  // The first failure of any of them, or OK. Does not block.
  virtual Status Poll() = 0;

  // Aborts every communicator of the pool as far as this rank can reach.
  virtual void Abort(const Status& cause) noexcept = 0;
};

// Do all ranks hold the same plan?
class StepAgreement {
 public:
  virtual ~StepAgreement() = default;

  // Collective over the pool, on the host; blocks until all ranks called it, or
  // a deadline of the implementation. `digest` is RankPlan::digest. Errors:
  // FAILED_PRECONDITION on every rank if any two differ, naming the ranks in
  // the minority; DEADLINE_EXCEEDED naming the ranks that did not come.
  virtual Status Agree(std::string_view digest) = 0;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_COMMUNICATOR_H_
