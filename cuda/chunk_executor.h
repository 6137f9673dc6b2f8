// Attention over a chunk plan (ChunkFlow, arXiv 2503.02356): a long sequence
// goes through in dependent chunks, each of which attends to the keys and
// values that its predecessors left in a store, so that activations of only a
// few chunks are kept at a time. Outputs and gradients are those of dense
// causal attention over whole sequences.
//
// Example, with n layers:
//   auto executor = ChunkExecutor::Create(options, resources);
//   auto step = (*executor)->Prepare(rank_plan);
//   for each operation i of rank_plan.chunk_plan:
//     if it is a backward pass:
//       for layer = n - 1 .. 0:
//         (*executor)->Backward(*step, i, layer, {q, k, v, o, lse, d_o, dq, dk,
//                               dv}, stream);
//     else:
//       for layer = 0 .. n - 1:
//         (*executor)->Forward(*step, i, layer, {q, k, v, o, lse}, stream);
//
// Schedule of a chunk that a CP group of several ranks shares. On one rank
// there is no exchange, and whole sequences need no store.
//   forward    pack | all-gather K, V | to the store | attention
//   recompute  attention: the store has K and V
//   backward   attention | dK, dV of the chunk and its predecessors to the
//              store | reduce-scatter of the chunk's own | deliver
// A chunk's dK and dV are complete at its backward pass, for its successors'
// went before: each chunk has one all-gather and one reduce-scatter a layer. No
// local sequence lies beside a chunk to hide them; they run on the executor's
// communication stream nevertheless, in the order of the calls.
//
// Guarantees.
//  - The calls are the plan's operations in order, and in each all layers; any
//    other call is refused. So collectives are issued in one order on all
//    ranks, and a rank that holds no rows of a chunk takes part all the same.
//  - A recomputation gives the same bits as the forward pass, if the backend
//    does.
//  - Forward and Backward never block the host; equal inputs give equal bits;
//    the first failure is sticky and releases the other ranks; no exception
//    leaves: all as in executor.h.
//  - The store's memory is that of chunk_store.h: what the plan needs at its
//    peak, made in Prepare and kept for later steps. K and V of a sequence lie
//    there from its first forward pass to the backward pass of its first chunk,
//    whose rows the next sequence then takes.
//
// Thread-safety: as executor.h says.
#ifndef SKRULL_CUDA_CHUNK_EXECUTOR_H_
#define SKRULL_CUDA_CHUNK_EXECUTOR_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/chunk_step.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/executor.h"
#include "skrull/cuda/status.h"
#include "skrull/cuda/tensor.h"
#include "skrull/planner/rank_plan.h"

namespace skrull::exec {

struct ChunkExecutorOptions {
  AttentionProblem problem;
  int32_t layer_count = 1;  // layers whose attention goes through it
  // In what dK, dV travel and are summed over ranks: the problem's dtype
  // (default) or its accumulator's. Over chunks they are summed in the
  // accumulator's.
  std::optional<DType> grad_comm_dtype;
};

class ChunkExecutor {
 public:
  // Errors: as Executor::Create; INVALID_ARGUMENT for layer_count.
  static Result<std::unique_ptr<ChunkExecutor>> Create(
      const ChunkExecutorOptions& options, const ExecutorResources& resources);

  // Aborts what did not complete if the executor failed, else waits for it.
  ~ChunkExecutor();

  // As Executor::Prepare, for a plan with chunks. The store begins anew: calls
  // go to the step of the last Prepare, and one that was under way is given up.
  // Errors: FAILED_PRECONDITION if the ranks hold different plans (nothing has
  // changed then); INVALID_ARGUMENT for another rank's plan, or naming what is
  // wrong with its chunks or operations; UNSUPPORTED for a plan of
  // micro-batches.
  Result<ChunkStep> Prepare(const RankPlan& plan);

  // One layer of the step's `operation`, a forward pass or a recomputation.
  // Tensors: as executor.h says, rows = step.maps(operation).rows; a
  // recomputation gets k and v as its forward pass did. Errors:
  // INVALID_ARGUMENT saying which call is next, or naming the tensor and what
  // is wrong with it; those of backend, device and communicators.
  Status Forward(const ChunkStep& step, int32_t operation, int32_t layer,
                 const ForwardTensors& tensors, Stream stream);
  // The same for a backward pass; q, k, v, o and lse of the chunk's last
  // forward pass or recomputation.
  Status Backward(const ChunkStep& step, int32_t operation, int32_t layer,
                  const BackwardTensors& tensors, Stream stream);

  // Bytes of the store. Not during a Prepare.
  int64_t store_bytes() const;

  // As Executor's.
  Status Poll();
  Status Wait(std::chrono::nanoseconds timeout);
  void Abort(const Status& cause) noexcept;

 private:
  class Impl;
  explicit ChunkExecutor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CHUNK_EXECUTOR_H_
