// Execution through skrull_exec.h.
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "skrull/cuda/c_api/call.h"
#include "skrull/cuda/c_api/handles.h"
#include "skrull/cuda/gathered_agreement.h"

namespace skrull::exec::c_api {
namespace {

constexpr double kMaxSeconds = 1e6;

Status CheckFlag(const char* name, int32_t value) {
  if (value == 0 || value == 1) return {};
  return InvalidArgument("executor options: " + std::string(name) + " is " +
                         std::to_string(value) + ", not 0 or 1");
}

Result<ExecutorOptions> ToOptions(const skrull_executor_options& given) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckFlag("deterministic", given.deterministic));
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckFlag("grad_comm_accumulator", given.grad_comm_accumulator));
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

// The caller's all-gather of digests as the agreement's.
DigestAllGather ToGather(skrull_gather_digests gather, void* context) {
  return [=](const DigestBytes& mine, std::span<DigestBytes> all) -> Status {
    std::array<char, 256> message{};
    const int32_t code =
        gather(context, mine.data(), all[0].data(), message.data(),
               static_cast<int64_t>(message.size()));
    message.back() = '\0';
    return CallbackStatus("gather_digests", code, message.data());
  };
}

Status Create(const skrull_executor_options* options, skrull_device* device,
              skrull_backend* backend, skrull_comm* comm,
              skrull_executor** executor) {
  skrull_executor_options read;
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(executor, "executor"));
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(device, "device"));
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(backend, "backend"));
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(comm, "comm"));
  SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(options, "executor options", &read));
  const Result<ExecutorOptions> wanted = ToOptions(read);
  SKRULL_EXEC_RETURN_IF_ERROR(wanted.status());
  auto made = std::make_unique<skrull_executor>();
  made->device = device->state;
  made->backend = backend->backend;
  made->comm = comm->state;
  if (read.gather_digests != nullptr) {
    made->agreement = std::make_unique<GatheredAgreement>(
        made->comm->communicators()->size(),
        ToGather(read.gather_digests, read.gather_context));
  }
  auto created =
      Executor::Create(*wanted, {.device = made->device->device(),
                                 .backend = made->backend.get(),
                                 .communicators = made->comm->communicators(),
                                 .agreement = made->agreement != nullptr
                                                  ? made->agreement.get()
                                                  : made->comm->agreement()});
  SKRULL_EXEC_RETURN_IF_ERROR(created.status());
  made->executor = *std::move(created);
  *executor = made.release();
  return {};
}

Tensor ToTensor(const skrull_attention_tensor& t) {
  return {.data = t.data,
          .dtype = static_cast<DType>(t.dtype),
          .rows = t.rows,
          .heads = t.heads,
          .dim = t.dim,
          .row_stride = t.row_stride,
          .head_stride = t.head_stride};
}

// A call that all ranks make: what goes wrong in it is the end of the executor.
template <class Work>
int32_t RankCall(skrull_executor* executor, const Work& work) {
  if (const Status given = NotNull(executor, "executor"); !given.ok()) {
    return Report(given);
  }
  const Status status = skrull::exec::internal::WithoutExceptions(work);
  if (!status.ok()) executor->executor->Abort(status);
  return Report(status);
}

Status CheckCall(skrull_executor* executor, const skrull_step* step,
                 void* stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(executor->executor->Poll());
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(step, "step"));
  return executor->device->CheckStream({stream});
}

}  // namespace
}  // namespace skrull::exec::c_api

using skrull::exec::InvalidArgument;
using skrull::exec::Status;
using skrull::exec::StatusCode;
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
  if (const Status given = NotNull(executor, "executor"); !given.ok()) {
    return Report(given);
  }
  const Status status =
      skrull::exec::internal::WithoutExceptions([&]() -> Status {
        SKRULL_EXEC_RETURN_IF_ERROR(NotNull(step, "step"));
        skrull::RankPlan none;
        none.rank = executor->comm->communicators()->rank();
        auto prepared =
            executor->executor->Prepare(plan == nullptr ? none : plan->plan);
        SKRULL_EXEC_RETURN_IF_ERROR(prepared.status());
        if (plan == nullptr) return InvalidArgument("no rank has a plan");
        *step = new skrull_step{executor->device, *std::move(prepared)};
        return {};
      });
  if (!status.ok() && status.code() != StatusCode::kFailedPrecondition) {
    executor->executor->Abort(status);
  }
  return Report(status);
}

void skrull_step_destroy(skrull_step* step) { delete step; }

int32_t skrull_executor_forward(skrull_executor* executor,
                                const skrull_step* step, int32_t micro_batch,
                                const skrull_forward_tensors* tensors,
                                void* stream) {
  return RankCall(executor, [&]() -> Status {
    skrull_forward_tensors t;
    SKRULL_EXEC_RETURN_IF_ERROR(CheckCall(executor, step, stream));
    SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(tensors, "tensors", &t));
    return executor->executor->Forward(step->step, micro_batch,
                                       {.q = ToTensor(t.q),
                                        .k = ToTensor(t.k),
                                        .v = ToTensor(t.v),
                                        .o = ToTensor(t.o),
                                        .lse = ToTensor(t.lse)},
                                       {stream});
  });
}

int32_t skrull_executor_backward(skrull_executor* executor,
                                 const skrull_step* step, int32_t micro_batch,
                                 const skrull_backward_tensors* tensors,
                                 void* stream) {
  return RankCall(executor, [&]() -> Status {
    skrull_backward_tensors t;
    SKRULL_EXEC_RETURN_IF_ERROR(CheckCall(executor, step, stream));
    SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(tensors, "tensors", &t));
    return executor->executor->Backward(step->step, micro_batch,
                                        {.q = ToTensor(t.q),
                                         .k = ToTensor(t.k),
                                         .v = ToTensor(t.v),
                                         .o = ToTensor(t.o),
                                         .lse = ToTensor(t.lse),
                                         .d_o = ToTensor(t.d_o),
                                         .dq = ToTensor(t.dq),
                                         .dk = ToTensor(t.dk),
                                         .dv = ToTensor(t.dv)},
                                        {stream});
  });
}

int32_t skrull_executor_poll(skrull_executor* executor) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(executor, "executor"));
    return executor->executor->Poll();
  });
}

int32_t skrull_executor_wait(skrull_executor* executor, double seconds) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(executor, "executor"));
    if (!(seconds >= 0 && seconds <= kMaxSeconds)) {  // NaN fails both
      return InvalidArgument("seconds is " + std::to_string(seconds));
    }
    return executor->executor->Wait(
        std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::duration<double>(seconds)));
  });
}

int32_t skrull_executor_abort(skrull_executor* executor, const char* reason) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(executor, "executor"));
    executor->executor->Abort(
        {StatusCode::kAborted, reason == nullptr ? "" : reason});
    return {};
  });
}

}  // extern "C"
