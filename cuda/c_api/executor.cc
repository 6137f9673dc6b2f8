// Execution through skrull_exec.h.
#include <memory>
#include <utility>

#include "skrull/cuda/c_api/execution.h"

namespace skrull::exec::c_api {
namespace {

Result<ExecutorOptions> ToOptions(const skrull_executor_options& given) {
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckZero("executor options: reserved", given.reserved));
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckFlag("executor options: deterministic", given.deterministic));
  SKRULL_EXEC_RETURN_IF_ERROR(CheckFlag(
      "executor options: grad_comm_accumulator", given.grad_comm_accumulator));
  ExecutorOptions options;
  options.problem = {.dtype = static_cast<DType>(given.dtype),
                     .q_heads = given.q_heads,
                     .kv_heads = given.kv_heads,
                     .head_dim = given.head_dim,
                     .scale = given.scale,
                     .deterministic = given.deterministic == 1};
  options.exchange = static_cast<Exchange>(given.exchange);
  if (given.grad_comm_accumulator == 1) {
    options.grad_comm_dtype = AccumulatorOf(options.problem.dtype);
  }
  return options;
}

Status Create(const skrull_executor_options* options, skrull_device* device,
              skrull_backend* backend, skrull_comm* comm,
              skrull_executor** executor) {
  skrull_executor_options read;
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(executor, "executor"));
  SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(options, "executor options", &read));
  const Result<ExecutorOptions> wanted = ToOptions(read);
  SKRULL_EXEC_RETURN_IF_ERROR(wanted.status());
  Result<ExecutorParts> parts =
      ToParts(device, backend, comm, read.gather_digests, read.gather_context);
  SKRULL_EXEC_RETURN_IF_ERROR(parts.status());
  auto made = std::make_unique<skrull_executor>();
  made->parts = *std::move(parts);
  auto created = Executor::Create(*wanted, made->parts.resources());
  SKRULL_EXEC_RETURN_IF_ERROR(created.status());
  made->executor = *std::move(created);
  *executor = made.release();
  return {};
}

}  // namespace
}  // namespace skrull::exec::c_api

using skrull::exec::Status;
using namespace skrull::exec::c_api;  // NOLINT: one file of one interface

extern "C" {

int32_t skrull_executor_create(const skrull_executor_options* options,
                               skrull_device* device, skrull_backend* backend,
                               skrull_comm* comm, skrull_executor** executor) {
  return Call([&] { return Create(options, device, backend, comm, executor); });
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
