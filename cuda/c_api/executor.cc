// Execution through skrull_exec.h.
#include <utility>

#include "skrull/cuda/c_api/execution.h"

namespace skrull::exec::c_api {
namespace {

// The fields that only this executor's options have.
void TakeOwn(const skrull_executor_options& given, ExecutorOptions* options) {
  options->exchange = static_cast<Exchange>(given.exchange);
}

}  // namespace
}  // namespace skrull::exec::c_api

using skrull::exec::Status;
using namespace skrull::exec::c_api;  // NOLINT: one file of one interface

extern "C" {

int32_t skrull_executor_create(const skrull_executor_options* options,
                               skrull_device* device, skrull_backend* backend,
                               skrull_comm* comm, skrull_executor** executor) {
  return CreateCall<skrull::exec::Executor>(options, TakeOwn, device, backend,
                                            comm, executor);
}

void skrull_executor_destroy(skrull_executor* executor) { delete executor; }

int32_t skrull_executor_prepare(skrull_executor* executor,
                                const skrull_plan* plan, skrull_step** step) {
  return PrepareCall(executor, plan, {}, step);
}

void skrull_step_destroy(skrull_step* step) { delete step; }

int32_t skrull_executor_forward(skrull_executor* executor,
                                const skrull_step* step, int32_t micro_batch,
                                const skrull_forward_tensors* tensors,
                                void* stream) {
  return RankCall(executor, [&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckCall(executor, step, stream));
    const auto read = ToForward(tensors);
    SKRULL_EXEC_RETURN_IF_ERROR(read.status());
    return executor->executor->Forward(step->step, micro_batch, *read,
                                       {stream});
  });
}

int32_t skrull_executor_backward(skrull_executor* executor,
                                 const skrull_step* step, int32_t micro_batch,
                                 const skrull_backward_tensors* tensors,
                                 void* stream) {
  return RankCall(executor, [&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckCall(executor, step, stream));
    const auto read = ToBackward(tensors);
    SKRULL_EXEC_RETURN_IF_ERROR(read.status());
    return executor->executor->Backward(step->step, micro_batch, *read,
                                        {stream});
  });
}

int32_t skrull_executor_poll(skrull_executor* executor) {
  return PollCall(executor);
}

int32_t skrull_executor_wait(skrull_executor* executor, double seconds) {
  return WaitCall(executor, seconds);
}

int32_t skrull_executor_abort(skrull_executor* executor, const char* reason) {
  return AbortCall(executor, reason);
}

}  // extern "C"
