// The all-gather schedule: see executor.h.
//
// Each block has two buffers of its communicator: the slot, this rank's rows,
// and the gathered slots of all ranks. The gather goes from the first to the
// second, the reduce-scatter of dK and dV back. Every access is ordered: comm
// work follows the caller's stream up to where it is issued, and the caller's
// stream waits for it before it touches the buffers again.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "skrull/cuda/engine.h"

namespace skrull::exec::internal {
namespace {

constexpr size_t kSlot = 0;
constexpr size_t kGathered = 1;

class AllGatherEngine final : public Engine {
 public:
  explicit AllGatherEngine(std::unique_ptr<EngineCore> core)
      : core_(std::move(core)) {}

  ~AllGatherEngine() override {
    if (arrived_.handle != nullptr) device()->DestroyEvent(arrived_);
  }

  Status Reserve(const StepState& step) override {
    if (arrived_.handle == nullptr) {
      Result<Event> event = device()->CreateEvent();
      SKRULL_EXEC_RETURN_IF_ERROR(event.status());
      arrived_ = *event;
    }
    const int64_t row_bytes =
        core_->kv_row_elements() *
        std::max(SizeOf(core_->dtype()), SizeOf(core_->grad_comm_dtype()));
    SKRULL_EXEC_RETURN_IF_ERROR(
        core_->ReserveChannels(step, [&](const BlockMaps& maps) {
          return std::vector<int64_t>{maps.slot_rows * row_bytes,
                                      maps.gathered_rows() * row_bytes};
        }));
    for (const MicroBatchState& mb : step.micro_batches) {
      Arena sizes(nullptr);
      TakeGradients(mb, &sizes);
      SKRULL_EXEC_RETURN_IF_ERROR(core_->ReserveScratch(sizes.used()));
      for (const Segments* segments :
           {&mb.local, &mb.local_first, &mb.local_second, &mb.sharded}) {
        SKRULL_EXEC_RETURN_IF_ERROR(core_->ReserveAttention(*segments));
      }
    }
    return {};
  }

  Status Forward(const MicroBatchState& mb, const ForwardTensors& t,
                 Stream stream) override {
    const MicroBatchMaps& maps = mb.maps;
    const int32_t local = maps.local_rows;
    const int32_t sharded = maps.rows - local;
    SKRULL_EXEC_RETURN_IF_ERROR(Gather(mb, t.k, t.v, stream));
    SKRULL_EXEC_RETURN_IF_ERROR(
        core_->AttendForward(mb.local,
                             {.q = t.q.Rows(0, local),
                              .k = t.k.Rows(0, local),
                              .v = t.v.Rows(0, local),
                              .o = t.o.Rows(0, local),
                              .lse = t.lse.Rows(0, local)},
                             stream));
    Arena arena(core_->scratch());
    const Keys keys = TakeKeys(mb, &arena);
    SKRULL_EXEC_RETURN_IF_ERROR(Unpack(mb, keys, stream));
    return core_->AttendForward(mb.sharded,
                                {.q = t.q.Rows(local, sharded),
                                 .k = keys.k,
                                 .v = keys.v,
                                 .o = t.o.Rows(local, sharded),
                                 .lse = t.lse.Rows(local, sharded)},
                                stream);
  }

  Status Backward(const MicroBatchState& mb, const BackwardTensors& t,
                  Stream stream) override {
    const MicroBatchMaps& maps = mb.maps;
    const int32_t first = maps.local_first.cu_q.back();
    const int32_t local = maps.local_rows;
    SKRULL_EXEC_RETURN_IF_ERROR(Gather(mb, t.k, t.v, stream));
    SKRULL_EXEC_RETURN_IF_ERROR(
        core_->AttendBackward(mb.local_first, Rows(t, 0, first), stream));

    Arena arena(core_->scratch());
    const Gradients scratch = TakeGradients(mb, &arena);
    SKRULL_EXEC_RETURN_IF_ERROR(Unpack(mb, scratch.keys, stream));
    BackwardTensors sharded = Rows(t, local, maps.rows - local);
    sharded.k = scratch.keys.k;
    sharded.v = scratch.keys.v;
    sharded.dk = scratch.dk;
    sharded.dv = scratch.dv;
    SKRULL_EXEC_RETURN_IF_ERROR(
        core_->AttendBackward(mb.sharded, sharded, stream));

    SKRULL_EXEC_RETURN_IF_ERROR(Reduce(mb, scratch, stream));
    SKRULL_EXEC_RETURN_IF_ERROR(core_->AttendBackward(
        mb.local_second, Rows(t, first, local - first), stream));
    return Deliver(mb, t, stream);
  }

 private:
  // K and V of the sharded call: the prefix of each segment.
  struct Keys {
    Tensor k, v;  // without the tail rows behind them
    Tensor k_tail, v_tail;
  };
  struct Gradients {
    Keys keys;
    Tensor dk, dv;
  };

  Device* device() const { return core_->device(); }

  Keys TakeKeys(const MicroBatchState& mb, Arena* arena) const {
    const AttentionProblem& p = core_->problem();
    const int64_t rows = mb.sharded.bounds.total_kv;
    const int64_t tail = core_->backend()->kv_tail_rows();
    const auto take = [&] {
      return arena->Take(p.dtype, rows + tail, p.kv_heads, p.head_dim);
    };
    const Tensor k = take();
    const Tensor v = take();
    return {.k = k.Rows(0, rows),
            .v = v.Rows(0, rows),
            .k_tail = k.Rows(rows, tail),
            .v_tail = v.Rows(rows, tail)};
  }

  Gradients TakeGradients(const MicroBatchState& mb, Arena* arena) const {
    const AttentionProblem& p = core_->problem();
    const int64_t rows = mb.sharded.bounds.total_kv;
    const Keys keys = TakeKeys(mb, arena);
    const Tensor dk = arena->Take(p.dtype, rows, p.kv_heads, p.head_dim);
    const Tensor dv = arena->Take(p.dtype, rows, p.kv_heads, p.head_dim);
    return {.keys = keys, .dk = dk, .dv = dv};
  }

  static BackwardTensors Rows(const BackwardTensors& t, int32_t first,
                              int32_t count) {
    return {.q = t.q.Rows(first, count),
            .k = t.k.Rows(first, count),
            .v = t.v.Rows(first, count),
            .o = t.o.Rows(first, count),
            .lse = t.lse.Rows(first, count),
            .d_o = t.d_o.Rows(first, count),
            .dq = t.dq.Rows(first, count),
            .dk = t.dk.Rows(first, count),
            .dv = t.dv.Rows(first, count)};
  }

  // Packs K and V of each block and starts its all-gather.
  Status Gather(const MicroBatchState& mb, const Tensor& k, const Tensor& v,
                Stream stream) {
    for (size_t b = 0; b < mb.blocks.size(); ++b) {
      const BlockMaps& maps = mb.maps.blocks[b];
      const Channel& channel = core_->channel(maps);
      void* slot = channel.buffers[kSlot].data();
      if (mb.blocks[b].pack.count > 0) {
        const RowPair pairs[] = {
            {core_->KvHalf(slot, core_->dtype(), maps.slot_rows, 0), k},
            {core_->KvHalf(slot, core_->dtype(), maps.slot_rows, 1), v}};
        SKRULL_EXEC_RETURN_IF_ERROR(
            device()->GatherRows(pairs, mb.blocks[b].pack, stream));
      }
      SKRULL_EXEC_RETURN_IF_ERROR(core_->CommFollows(stream));
      SKRULL_EXEC_RETURN_IF_ERROR(channel.communicator->AllGather(
          slot, channel.buffers[kGathered].data(),
          maps.slot_rows * core_->kv_row_elements() * SizeOf(core_->dtype()),
          core_->comm()));
    }
    if (mb.blocks.empty()) return {};
    return device()->Record(arrived_, core_->comm());
  }

  // Waits for the gathered rows and puts the keys in natural order.
  Status Unpack(const MicroBatchState& mb, const Keys& keys, Stream stream) {
    if (mb.blocks.empty()) return {};
    SKRULL_EXEC_RETURN_IF_ERROR(device()->Wait(stream, arrived_));
    for (size_t b = 0; b < mb.blocks.size(); ++b) {
      if (mb.blocks[b].unpack.count == 0) continue;
      const BlockMaps& maps = mb.maps.blocks[b];
      void* gathered = core_->channel(maps).buffers[kGathered].data();
      const int64_t rows = maps.gathered_rows();
      const RowPair pairs[] = {
          {keys.k, core_->KvHalf(gathered, core_->dtype(), rows, 0)},
          {keys.v, core_->KvHalf(gathered, core_->dtype(), rows, 1)}};
      SKRULL_EXEC_RETURN_IF_ERROR(
          device()->GatherRows(pairs, mb.blocks[b].unpack, stream));
    }
    for (const Tensor& tail : {keys.k_tail, keys.v_tail}) {
      if (tail.rows == 0 || mb.sharded.bounds.count == 0) continue;
      SKRULL_EXEC_RETURN_IF_ERROR(device()->Zero(
          tail.data, tail.rows * tail.row_stride * SizeOf(tail.dtype), stream));
    }
    return {};
  }

  // Folds dK and dV of each block's prefixes into one row each, in the order
  // of the gathered rows, and starts the block's reduce-scatter.
  Status Reduce(const MicroBatchState& mb, const Gradients& scratch,
                Stream stream) {
    const DType dtype = core_->grad_comm_dtype();
    for (size_t b = 0; b < mb.blocks.size(); ++b) {
      const BlockMaps& maps = mb.maps.blocks[b];
      const Channel& channel = core_->channel(maps);
      void* gathered = channel.buffers[kGathered].data();
      const int64_t rows = maps.gathered_rows();
      const RowPair pairs[] = {
          {core_->KvHalf(gathered, dtype, rows, 0), scratch.dk},
          {core_->KvHalf(gathered, dtype, rows, 1), scratch.dv}};
      SKRULL_EXEC_RETURN_IF_ERROR(
          device()->FoldRows(pairs, mb.blocks[b].fold, stream));
      SKRULL_EXEC_RETURN_IF_ERROR(core_->CommFollows(stream));
      SKRULL_EXEC_RETURN_IF_ERROR(channel.communicator->ReduceScatter(
          gathered, channel.buffers[kSlot].data(),
          maps.slot_rows * core_->kv_row_elements(), dtype, core_->comm()));
    }
    if (mb.blocks.empty()) return {};
    return device()->Record(arrived_, core_->comm());
  }

  // Waits for the sums and puts them into the rank's rows.
  Status Deliver(const MicroBatchState& mb, const BackwardTensors& t,
                 Stream stream) {
    if (mb.blocks.empty()) return {};
    SKRULL_EXEC_RETURN_IF_ERROR(device()->Wait(stream, arrived_));
    const DType dtype = core_->grad_comm_dtype();
    for (size_t b = 0; b < mb.blocks.size(); ++b) {
      if (mb.blocks[b].deliver.count == 0) continue;
      const BlockMaps& maps = mb.maps.blocks[b];
      void* slot = core_->channel(maps).buffers[kSlot].data();
      const RowPair pairs[] = {
          {t.dk, core_->KvHalf(slot, dtype, maps.slot_rows, 0)},
          {t.dv, core_->KvHalf(slot, dtype, maps.slot_rows, 1)}};
      SKRULL_EXEC_RETURN_IF_ERROR(
          device()->GatherRows(pairs, mb.blocks[b].deliver, stream));
    }
    return {};
  }

  const std::unique_ptr<EngineCore> core_;
  // The last collective that was issued.
  Event arrived_;
};

}  // namespace

std::unique_ptr<Engine> NewAllGatherEngine(std::unique_ptr<EngineCore> core) {
  return std::make_unique<AllGatherEngine>(std::move(core));
}

}  // namespace skrull::exec::internal
