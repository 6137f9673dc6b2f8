#include "skrull/cuda/c_api/execution.h"

#include <array>
#include <memory>
#include <span>
#include <string>

#include "skrull/cuda/gathered_agreement.h"

namespace skrull::exec::c_api {
namespace {

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

Tensor ToTensor(const skrull_attention_tensor& t) {
  return {.data = t.data,
          .dtype = static_cast<DType>(t.dtype),
          .rows = t.rows,
          .heads = t.heads,
          .dim = t.dim,
          .row_stride = t.row_stride,
          .head_stride = t.head_stride};
}

}  // namespace

Result<ExecutorParts> ToParts(const skrull_device* device,
                              const skrull_backend* backend,
                              const skrull_comm* comm,
                              skrull_gather_digests gather,
                              void* gather_context) {
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(device, "device"));
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(backend, "backend"));
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(comm, "comm"));
  // The executor compares device and backend.
  if (comm->state->memory() != device->state->device()->memory()) {
    return InvalidArgument("communicator " + std::string(comm->state->name()) +
                           " does not work on the memory of device " +
                           std::string(device->state->device()->name()));
  }
  ExecutorParts parts{.device = device->state,
                      .backend = backend->backend,
                      .comm = comm->state,
                      .own_agreement = nullptr};
  if (gather != nullptr) {
    parts.own_agreement = std::make_unique<GatheredAgreement>(
        parts.comm->communicators()->size(), ToGather(gather, gather_context));
  }
  return parts;
}

Result<ForwardTensors> ToForward(const skrull_forward_tensors* tensors) {
  skrull_forward_tensors t;
  SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(tensors, "tensors", &t));
  return ForwardTensors{.q = ToTensor(t.q),
                        .k = ToTensor(t.k),
                        .v = ToTensor(t.v),
                        .o = ToTensor(t.o),
                        .lse = ToTensor(t.lse)};
}

Result<BackwardTensors> ToBackward(const skrull_backward_tensors* tensors) {
  skrull_backward_tensors t;
  SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(tensors, "tensors", &t));
  return BackwardTensors{.q = ToTensor(t.q),
                         .k = ToTensor(t.k),
                         .v = ToTensor(t.v),
                         .o = ToTensor(t.o),
                         .lse = ToTensor(t.lse),
                         .d_o = ToTensor(t.d_o),
                         .dq = ToTensor(t.dq),
                         .dk = ToTensor(t.dk),
                         .dv = ToTensor(t.dv)};
}

}  // namespace skrull::exec::c_api
