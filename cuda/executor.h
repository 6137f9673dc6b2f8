// Attention over a rank plan: local sequences as they lie, sharded ones through
// an exchange of K and V that hides behind the local ones' attention.
//
// Example, one layer:
//   auto executor = Executor::Create(options, resources);
//   auto step = (*executor)->Prepare(rank_plan);
//   for each micro-batch i:
//     (*executor)->Forward(*step, i, {q, k, v, o, lse}, stream);
//     (*executor)->Backward(*step, i, {q, k, v, o, lse, d_o, dq, dk, dv},
//                           stream);
//   (*executor)->Wait(std::chrono::seconds(60));
//
// Schedule, on the caller's stream (compute) and one of the executor's (comm):
//   forward   compute: pack | local call      | wait, unpack, sharded call
//             comm:         | all-gather K, V |
//   backward  compute: pack | local part 1 | wait, unpack, sharded call, fold
//             comm:         | all-gather   |
//             compute: | local part 2   | wait, deliver dK, dV
//             comm:    | reduce-scatter |
// The ring (kRing) has the same interface and sends slots around instead.
//
// Guarantees.
//  - Collectives are issued in one order on all ranks: by call, then phase
//    (gather, reduce; ring: step), then block, ascending. It follows from the
//    plan alone: a rank that holds no rows of a block takes part all the same.
//  - Forward and Backward never block the host. All work they start ends before
//    what the caller enqueues on the stream afterwards.
//  - Equal inputs give equal bits, if the backend's and communicator's do.
//  - The first failure is sticky: it aborts the communicators, so that no rank
//    waits for this one, and every later call returns it. Only a plan that the
//    ranks disagree on leaves the executor usable.
//  - No exception leaves: std::bad_alloc is OUT_OF_MEMORY.
//
// Thread-safety: calls of one executor come one at a time; Poll, Wait and Abort
// may come from any thread at any time. The micro-batch, layer and pass of the
// calls must be the same on every rank, in the same order.
#ifndef SKRULL_CUDA_EXECUTOR_H_
#define SKRULL_CUDA_EXECUTOR_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/communicator.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"
#include "skrull/cuda/step.h"
#include "skrull/cuda/tensor.h"
#include "skrull/planner/rank_plan.h"

namespace skrull::exec {

// The numbers are part of the C interface.
enum class Exchange : int32_t {
  // One all-gather of K, V per block. Memory: about three times K and V of the
  // sharded sequences, and their gradients.
  kAllGather = 0,
  // K, V go round the block slot by slot. Memory of a few slots; one attention
  // call and one merge per step. For sequences whose K, V do not fit.
  kRing = 1,
};

struct ExecutorOptions {
  AttentionProblem problem;
  Exchange exchange = Exchange::kAllGather;
  // In what dK, dV travel and are summed over ranks: the problem's dtype
  // (default) or its accumulator's, which halves the rounding error of bf16 and
  // doubles the bytes. The ring always uses the accumulator's, and takes no
  // other.
  std::optional<DType> grad_comm_dtype;
};

// What an executor works with; all outlive it.
struct ExecutorResources {
  Device* device = nullptr;
  AttentionBackend* backend = nullptr;
  CommunicatorSet* communicators = nullptr;
  StepAgreement* agreement = nullptr;
};

// Shapes: q, o [rows, q_heads, head_dim]; k, v [rows, kv_heads, head_dim];
// lse [rows, q_heads, 1] in AccumulatorOf(dtype), laid out as the backend's
// lse_order(). rows = maps(micro_batch).rows, in the plan's row order. Behind
// the last row of k and v lie the backend's kv_tail_rows() of finite memory.
struct ForwardTensors {
  Tensor q, k, v;  // only read
  Tensor o, lse;   // every row is written
};

struct BackwardTensors {
  Tensor q, k, v, o, lse, d_o;  // only read
  Tensor dq, dk, dv;            // every row is overwritten
};

class Executor {
 public:
  // Errors: INVALID_ARGUMENT naming the option, or the resource that is null or
  // on another kind of memory; UNSUPPORTED by the backend; those of the device.
  // A failure leaves the communicators as they are: a rank that does not try
  // again aborts them, for the others wait for it in Prepare.
  static Result<std::unique_ptr<Executor>> Create(
      const ExecutorOptions& options, const ExecutorResources& resources);

  // Aborts what did not complete if the executor failed, else waits for it.
  ~Executor();

  // Agrees with the other ranks on the plan, announces its communicators, and
  // builds what the calls need. Collective over the pool. May block: for the
  // other ranks, and for earlier calls when buffers have to grow. Errors:
  // FAILED_PRECONDITION if the ranks hold different plans (nothing has changed
  // then); INVALID_ARGUMENT for another rank's plan or one that is no plan;
  // UNSUPPORTED for a chunk plan (chunk_executor.h).
  Result<Step> Prepare(const RankPlan& plan);

  // Errors: INVALID_ARGUMENT naming the tensor and what is wrong with it; those
  // of backend, device and communicators.
  Status Forward(const Step& step, int32_t micro_batch,
                 const ForwardTensors& tensors, Stream stream);
  Status Backward(const Step& step, int32_t micro_batch,
                  const BackwardTensors& tensors, Stream stream);

  // The first failure, also of work that runs asynchronously, or OK. Does not
  // block. A long training step should call it now and then: a failure that it
  // finds is passed on to the other ranks.
  Status Poll();

  // Blocks until all work of earlier calls is done, polling, or fails it with
  // DEADLINE_EXCEEDED after `timeout`, which aborts the communicators.
  Status Wait(std::chrono::nanoseconds timeout);

  // Fails the executor, and the others' with it as far as communicators reach.
  // `cause` is what later calls return. No effect if it failed before.
  // REQUIRES: !cause.ok().
  void Abort(const Status& cause) noexcept;

 private:
  class Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_EXECUTOR_H_
