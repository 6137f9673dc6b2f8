#include "skrull/cuda/engine_core.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

namespace skrull::exec::internal {
namespace {

// At most a quarter more than asked for, so that a step that needs a little
// more than the last one seldom reallocates.
int64_t Capacity(int64_t bytes) {
  const auto width = std::bit_width(static_cast<uint64_t>(bytes));
  const int64_t unit = width <= 3 ? 1 : int64_t{1} << (width - 3);
  return (bytes + unit - 1) / unit * unit;
}

Workspace View(const Buffer& buffer) {
  return {.data = buffer.data(), .bytes = buffer.bytes()};
}

}  // namespace

Result<std::unique_ptr<EngineCore>> EngineCore::Create(
    const ExecutorOptions& options, const ExecutorResources& resources,
    std::shared_ptr<Fence> fence) {
  auto core = std::unique_ptr<EngineCore>(
      new EngineCore(options, resources, std::move(fence)));
  Result<Stream> comm = core->device()->CreateStream(StreamPriority::kHigh);
  SKRULL_EXEC_RETURN_IF_ERROR(comm.status());
  core->comm_ = *comm;
  Result<Event> ready = core->device()->CreateEvent();
  SKRULL_EXEC_RETURN_IF_ERROR(ready.status());
  core->ready_ = *ready;
  return core;
}

EngineCore::~EngineCore() {
  if (comm_.handle != nullptr) device()->DestroyStream(comm_);
  if (ready_.handle != nullptr) device()->DestroyEvent(ready_);
}

DType EngineCore::grad_comm_dtype() const {
  return options_.grad_comm_dtype.value_or(dtype());
}

Tensor EngineCore::KvHalf(void* rows, DType type, int64_t count,
                          int half) const {
  const int64_t elements = kv_row_elements() / 2;
  char* data = static_cast<char*>(rows);
  return {.data = data + half * elements * SizeOf(type),
          .dtype = type,
          .rows = count,
          .heads = problem().kv_heads,
          .dim = problem().head_dim,
          .row_stride = 2 * elements,
          .head_stride = problem().head_dim};
}

Status EngineCore::CommFollows(Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(device()->Record(ready_, stream));
  return device()->Wait(comm_, ready_);
}

Status EngineCore::Quiesce() {
  SKRULL_EXEC_RETURN_IF_ERROR(device()->HostWait(fence_->done()));
  return device()->Synchronize(comm_);
}

Status EngineCore::ReserveChannels(const StepState& step,
                                   const ChannelBytes& bytes_of) {
  // All ranks of a block come to the same bytes, and to the same order.
  std::map<Block, std::vector<int64_t>> wanted;
  for (const MicroBatchState& mb : step.micro_batches) {
    for (const BlockMaps& maps : mb.maps.blocks) {
      std::vector<int64_t> bytes = bytes_of(maps);
      std::vector<int64_t>& most = wanted[maps.block];
      most.resize(bytes.size());
      for (size_t i = 0; i < bytes.size(); ++i) {
        most[i] = std::max(most[i], bytes[i]);
      }
    }
  }
  for (const auto& [block, bytes] : wanted) {
    SKRULL_EXEC_RETURN_IF_ERROR(ReserveChannel(block, bytes));
  }
  return {};
}

Status EngineCore::ReserveChannel(Block block,
                                  const std::vector<int64_t>& bytes) {
  Channel& channel = channels_[block];
  if (channel.communicator == nullptr) {
    Result<Communicator*> found = resources_.communicators->Find(block);
    SKRULL_EXEC_RETURN_IF_ERROR(found.status());
    channel.communicator = *found;
  }
  channel.buffers.resize(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    Buffer& buffer = channel.buffers[i];
    if (buffer.bytes() >= bytes[i]) continue;
    SKRULL_EXEC_RETURN_IF_ERROR(Quiesce());
    buffer = Buffer();
    Result<Buffer> memory = channel.communicator->Allocate(Capacity(bytes[i]));
    SKRULL_EXEC_RETURN_IF_ERROR(memory.status());
    buffer = *std::move(memory);
  }
  return {};
}

Status EngineCore::ReserveScratch(int64_t bytes) {
  if (scratch_.bytes() >= bytes) return {};
  SKRULL_EXEC_RETURN_IF_ERROR(Quiesce());
  scratch_ = Buffer();
  Result<Buffer> memory = device()->Allocate(Capacity(bytes));
  SKRULL_EXEC_RETURN_IF_ERROR(memory.status());
  scratch_ = *std::move(memory);
  return {};
}

Status EngineCore::ReserveAttention(const Segments& segments) {
  if (segments.bounds.count == 0) return {};
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    int64_t bytes = 0;
    const Status prepared = device()->AsCurrent([&] {
      const Result<int64_t> needed =
          backend()->Prepare(problem(), segments.bounds, pass);
      if (needed.ok()) bytes = *needed;
      return needed.status();
    });
    SKRULL_EXEC_RETURN_IF_ERROR(prepared);
    if (workspace_.bytes() >= bytes) continue;
    SKRULL_EXEC_RETURN_IF_ERROR(Quiesce());
    workspace_ = Buffer();
    Result<Buffer> memory = device()->Allocate(Capacity(bytes));
    SKRULL_EXEC_RETURN_IF_ERROR(memory.status());
    workspace_ = *std::move(memory);
  }
  return {};
}

Status EngineCore::AttendForward(const Segments& segments,
                                 const ForwardTensors& t, Stream stream) {
  if (segments.bounds.count == 0) return {};
  const AttentionForward call = {.problem = problem(),
                                 .segments = segments,
                                 .q = t.q,
                                 .k = t.k,
                                 .v = t.v,
                                 .o = t.o,
                                 .lse = t.lse};
  return device()->AsCurrent(
      [&] { return backend()->Forward(call, View(workspace_), stream); });
}

Status EngineCore::AttendBackward(const Segments& segments,
                                  const BackwardTensors& t, Stream stream) {
  if (segments.bounds.count == 0) return {};
  const AttentionBackward call = {.problem = problem(),
                                  .segments = segments,
                                  .q = t.q,
                                  .k = t.k,
                                  .v = t.v,
                                  .o = t.o,
                                  .d_o = t.d_o,
                                  .lse = t.lse,
                                  .dq = t.dq,
                                  .dk = t.dk,
                                  .dv = t.dv};
  return device()->AsCurrent(
      [&] { return backend()->Backward(call, View(workspace_), stream); });
}

}  // namespace skrull::exec::internal
