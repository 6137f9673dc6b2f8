// Execution through skrull_exec_chunks.h.
#include <utility>

#include "skrull/cuda/c_api/execution.h"
#include "skrull/cuda/c_api/skrull_exec_chunks.h"

namespace skrull::exec::c_api {
namespace {

// The fields that only this executor's options have.
void TakeOwn(const skrull_chunk_executor_options& given,
             ChunkExecutorOptions* options) {
  options->layer_count = given.layer_count;
}

// What a rank without a plan takes part with.
RankPlan NoChunks() {
  RankPlan plan;
  plan.chunk_plan.emplace().retained_chunks = 1;
  return plan;
}

}  // namespace
}  // namespace skrull::exec::c_api

using skrull::exec::Status;
using namespace skrull::exec::c_api;  // NOLINT: one file of one interface

extern "C" {

int32_t skrull_chunk_executor_create(
    const skrull_chunk_executor_options* options, skrull_device* device,
    skrull_backend* backend, skrull_comm* comm,
    skrull_chunk_executor** executor) {
  return CreateCall<skrull::exec::ChunkExecutor>(options, TakeOwn, device,
                                                 backend, comm, executor);
}

void skrull_chunk_executor_destroy(skrull_chunk_executor* executor) {
  delete executor;
}

int32_t skrull_chunk_executor_prepare(skrull_chunk_executor* executor,
                                      const skrull_chunk_plan* plan,
                                      skrull_chunk_step** step) {
  return PrepareCall(executor, plan, NoChunks(), step);
}

void skrull_chunk_step_destroy(skrull_chunk_step* step) { delete step; }

int32_t skrull_chunk_executor_forward(skrull_chunk_executor* executor,
                                      const skrull_chunk_step* step,
                                      int32_t operation, int32_t layer,
                                      const skrull_forward_tensors* tensors,
                                      void* stream) {
  return RankCall(executor, [&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckCall(executor, step, stream));
    const auto read = ToForward(tensors);
    SKRULL_EXEC_RETURN_IF_ERROR(read.status());
    return executor->executor->Forward(step->step, operation, layer, *read,
                                       {stream});
  });
}

int32_t skrull_chunk_executor_backward(skrull_chunk_executor* executor,
                                       const skrull_chunk_step* step,
                                       int32_t operation, int32_t layer,
                                       const skrull_backward_tensors* tensors,
                                       void* stream) {
  return RankCall(executor, [&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckCall(executor, step, stream));
    const auto read = ToBackward(tensors);
    SKRULL_EXEC_RETURN_IF_ERROR(read.status());
    return executor->executor->Backward(step->step, operation, layer, *read,
                                        {stream});
  });
}

int32_t skrull_chunk_executor_store_bytes(const skrull_chunk_executor* executor,
                                          int64_t* bytes) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(executor, "executor"));
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(bytes, "bytes"));
    *bytes = executor->executor->store_bytes();
    return {};
  });
}

int32_t skrull_chunk_executor_poll(skrull_chunk_executor* executor) {
  return PollCall(executor);
}

int32_t skrull_chunk_executor_wait(skrull_chunk_executor* executor,
                                   double seconds) {
  return WaitCall(executor, seconds);
}

int32_t skrull_chunk_executor_abort(skrull_chunk_executor* executor,
                                    const char* reason) {
  return AbortCall(executor, reason);
}

}  // extern "C"
