// What the C interfaces of both executors share.
#ifndef SKRULL_CUDA_C_API_EXECUTION_H_
#define SKRULL_CUDA_C_API_EXECUTION_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "skrull/cuda/c_api/call.h"
#include "skrull/cuda/c_api/handles.h"
#include "skrull/cuda/c_api/skrull_exec.h"
#include "skrull/cuda/executor.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::c_api {

// Shares of the handles, and the agreement over the caller's gather unless that
// is null. Errors: INVALID_ARGUMENT for a null handle, or one of other memory.
Result<ExecutorParts> ToParts(const skrull_device* device,
                              const skrull_backend* backend,
                              const skrull_comm* comm,
                              skrull_gather_digests gather,
                              void* gather_context);

// Errors: those of ReadStruct.
Result<ForwardTensors> ToForward(const skrull_forward_tensors* tensors);
Result<BackwardTensors> ToBackward(const skrull_backward_tensors* tensors);

// What the options of both executors say alike. Errors: UNSUPPORTED or
// INVALID_ARGUMENT naming the field.
template <class Options, class Given>
Result<Options> ToOptions(const Given& given) {
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckZero("executor options: reserved", given.reserved));
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckFlag("executor options: deterministic", given.deterministic));
  SKRULL_EXEC_RETURN_IF_ERROR(CheckFlag(
      "executor options: grad_comm_accumulator", given.grad_comm_accumulator));
  Options options;
  options.problem = {.dtype = static_cast<DType>(given.dtype),
                     .q_heads = given.q_heads,
                     .kv_heads = given.kv_heads,
                     .head_dim = given.head_dim,
                     .scale = given.scale,
                     .deterministic = given.deterministic == 1};
  if (given.grad_comm_accumulator == 1) {
    options.grad_comm_dtype = AccumulatorOf(options.problem.dtype);
  }
  return options;
}

// Makes an executor and its handle; take_own(given, &options) reads what only
// its options have. Sets *executor.
template <class Executor, class Given, class Options, class Handle>
int32_t CreateCall(const Given* options,
                   void (*take_own)(const Given&, Options*),
                   skrull_device* device, skrull_backend* backend,
                   skrull_comm* comm, Handle** executor) {
  return Call([&]() -> Status {
    Given read;
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(executor, "executor"));
    SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(options, "executor options", &read));
    Result<Options> wanted = ToOptions<Options>(read);
    SKRULL_EXEC_RETURN_IF_ERROR(wanted.status());
    take_own(read, &*wanted);
    Result<ExecutorParts> parts = ToParts(
        device, backend, comm, read.gather_digests, read.gather_context);
    SKRULL_EXEC_RETURN_IF_ERROR(parts.status());
    auto made = std::make_unique<Handle>();
    made->parts = *std::move(parts);
    auto created = Executor::Create(*wanted, made->parts.resources());
    SKRULL_EXEC_RETURN_IF_ERROR(created.status());
    made->executor = *std::move(created);
    *executor = made.release();
    return {};
  });
}

// What comes first in a forward or backward call.
template <class Handle, class Step>
Status CheckCall(const Handle* handle, const Step* step, void* stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(handle->executor->Poll());
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(step, "step"));
  return handle->parts.device->CheckStream({stream});
}

// A call that all ranks make: what goes wrong in it is the end of the executor.
template <class Handle, class Work>
int32_t RankCall(Handle* handle, const Work& work) {
  if (const Status given = NotNull(handle, "executor"); !given.ok()) {
    return Report(given);
  }
  const Status status = internal::WithoutExceptions(work);
  if (!status.ok()) handle->executor->Abort(status);
  return Report(status);
}

// `plan` null: this rank got none, and takes part with `none`. Sets *step.
// Ranks that hold different plans are not the end of the executor.
template <class Handle, class Plan, class Step>
int32_t PrepareCall(Handle* handle, const Plan* plan, RankPlan none,
                    Step** step) {
  if (const Status given = NotNull(handle, "executor"); !given.ok()) {
    return Report(given);
  }
  const Status status = internal::WithoutExceptions([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(step, "step"));
    none.rank = handle->parts.comm->communicators()->rank();
    auto prepared =
        handle->executor->Prepare(plan == nullptr ? none : plan->plan);
    SKRULL_EXEC_RETURN_IF_ERROR(prepared.status());
    if (plan == nullptr) return InvalidArgument("no rank has a plan");
    *step = new Step{handle->parts.device, *std::move(prepared)};
    return {};
  });
  if (!status.ok() && status.code() != StatusCode::kFailedPrecondition) {
    handle->executor->Abort(status);
  }
  return Report(status);
}

template <class Handle>
int32_t PollCall(Handle* handle) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(handle, "executor"));
    return handle->executor->Poll();
  });
}

template <class Handle>
int32_t WaitCall(Handle* handle, double seconds) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(handle, "executor"));
    const auto limit = ToDuration("seconds", seconds);
    SKRULL_EXEC_RETURN_IF_ERROR(limit.status());
    return handle->executor->Wait(*limit);
  });
}

template <class Handle>
int32_t AbortCall(Handle* handle, const char* reason) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(handle, "executor"));
    handle->executor->Abort(
        {StatusCode::kAborted, reason == nullptr ? "" : reason});
    return {};
  });
}

}  // namespace skrull::exec::c_api

#endif  // SKRULL_CUDA_C_API_EXECUTION_H_
