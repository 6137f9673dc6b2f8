// The ring schedule: in step t each rank attends to the slot of the rank t
// places below it, while that slot goes on to the rank above.
//
//   forward, step t   compute: wait slot t, take its keys | attend, merge
//                     comm:                               | shift to t + 1
//   backward, step t  the same, and dK, dV of slot t follow it: compute adds
//                     this rank's part, comm shifts the sum; after `degree`
//                     shifts it is home.
//
// Each block has two slots of K, V and two of dK, dV, read and written in turn.
// A shift follows the taking of the keys of its step, which comes after all
// that read the slot it overwrites. Local sequences' attention hides the first
// shift. O, dQ and the travelling sums have the accumulator's type.
#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "skrull/cuda/engine.h"

namespace skrull::exec::internal {
namespace {

// Buffers of a channel: K, V of even and odd steps, and their gradients.
constexpr size_t kKeys = 0;
constexpr size_t kSums = 2;

class RingEngine final : public Engine {
 public:
  explicit RingEngine(std::unique_ptr<EngineCore> core)
      : core_(std::move(core)) {}

  ~RingEngine() override {
    for (const Event event : {keys_arrived_, sums_arrived_}) {
      if (event.handle != nullptr) device()->DestroyEvent(event);
    }
  }

  Status Reserve(const StepState& step) override {
    for (Event* event : {&keys_arrived_, &sums_arrived_}) {
      if (event->handle != nullptr) continue;
      Result<Event> made = device()->CreateEvent();
      SKRULL_EXEC_RETURN_IF_ERROR(made.status());
      *event = *made;
    }
    SKRULL_EXEC_RETURN_IF_ERROR(
        core_->ReserveChannels(step, [&](const BlockMaps& maps) {
          const int64_t keys = SlotBytes(maps, core_->dtype());
          const int64_t sums = SlotBytes(maps, core_->accumulator());
          return std::vector<int64_t>{keys, keys, sums, sums};
        }));
    for (const MicroBatchState& mb : step.micro_batches) {
      Arena sizes(nullptr);
      TakeScratch(mb, &sizes);
      SKRULL_EXEC_RETURN_IF_ERROR(core_->ReserveScratch(sizes.used()));
      SKRULL_EXEC_RETURN_IF_ERROR(core_->ReserveAttention(mb.local));
      for (const RingStepRuns& runs : mb.ring) {
        SKRULL_EXEC_RETURN_IF_ERROR(core_->ReserveAttention(runs.segments));
      }
    }
    return {};
  }

  Status Forward(const MicroBatchState& mb, const ForwardTensors& t,
                 Stream stream) override {
    const int32_t local = mb.maps.local_rows;
    const int32_t sharded = mb.maps.rows - local;
    Arena arena(core_->scratch());
    const Scratch all = TakeScratch(mb, &arena);
    const Tensor q = t.q.Rows(local, sharded);
    SKRULL_EXEC_RETURN_IF_ERROR(Pack(mb, t.k, t.v, stream));
    for (size_t step = 0; step < std::max(mb.ring.size(), size_t{1}); ++step) {
      if (!mb.ring.empty()) {
        SKRULL_EXEC_RETURN_IF_ERROR(TakeKeys(mb, step, all, stream));
        SKRULL_EXEC_RETURN_IF_ERROR(ShiftKeys(mb, step, stream));
      }
      if (step == 0) {
        SKRULL_EXEC_RETURN_IF_ERROR(
            core_->AttendForward(mb.local,
                                 {.q = t.q.Rows(0, local),
                                  .k = t.k.Rows(0, local),
                                  .v = t.v.Rows(0, local),
                                  .o = t.o.Rows(0, local),
                                  .lse = t.lse.Rows(0, local)},
                                 stream));
      }
      if (mb.ring.empty()) return {};
      const RingStepRuns& runs = mb.ring[step];
      if (runs.segments.bounds.count == 0) continue;
      const Scratch part = all.Cut(runs.segments.bounds);
      SKRULL_EXEC_RETURN_IF_ERROR(device()->GatherRows(
          std::array{RowPair{part.q, q}}, runs.queries, stream));
      SKRULL_EXEC_RETURN_IF_ERROR(core_->AttendForward(
          runs.segments,
          {.q = part.q, .k = part.k, .v = part.v, .o = part.o, .lse = part.lse},
          stream));
      if (step == 0) {  // has every query: where the sums begin
        SKRULL_EXEC_RETURN_IF_ERROR(
            device()->GatherRows(std::array{RowPair{all.o_sum, part.o},
                                            RowPair{all.lse_sum, part.lse}},
                                 runs.results, stream));
      } else {
        SKRULL_EXEC_RETURN_IF_ERROR(
            device()->MergeAttention({.o = all.o_sum,
                                      .lse = all.lse_sum,
                                      .o_part = part.o,
                                      .lse_part = part.lse},
                                     runs.results, stream));
      }
    }
    if (sharded == 0) return {};
    // Step 0 lists every row in order, so its runs convert as well.
    return device()->GatherRows(
        std::array{RowPair{t.o.Rows(local, sharded), all.o_sum},
                   RowPair{t.lse.Rows(local, sharded), all.lse_sum}},
        mb.ring[0].results, stream);
  }

  Status Backward(const MicroBatchState& mb, const BackwardTensors& t,
                  Stream stream) override {
    const int32_t local = mb.maps.local_rows;
    const int32_t sharded = mb.maps.rows - local;
    Arena arena(core_->scratch());
    const Scratch all = TakeScratch(mb, &arena);
    SKRULL_EXEC_RETURN_IF_ERROR(Pack(mb, t.k, t.v, stream));
    for (const BlockMaps& maps : mb.maps.blocks) {
      SKRULL_EXEC_RETURN_IF_ERROR(device()->Zero(
          Sums(maps, 0), SlotBytes(maps, core_->accumulator()), stream));
    }
    if (sharded > 0) {
      SKRULL_EXEC_RETURN_IF_ERROR(device()->Zero(
          all.dq_sum.data,
          sharded * all.dq_sum.row_stride * SizeOf(all.dq_sum.dtype), stream));
    }
    for (size_t step = 0; step < std::max(mb.ring.size(), size_t{1}); ++step) {
      if (!mb.ring.empty()) {
        SKRULL_EXEC_RETURN_IF_ERROR(TakeKeys(mb, step, all, stream));
        SKRULL_EXEC_RETURN_IF_ERROR(ShiftKeys(mb, step, stream));
      }
      if (step == 0) {
        SKRULL_EXEC_RETURN_IF_ERROR(
            core_->AttendBackward(mb.local,
                                  {.q = t.q.Rows(0, local),
                                   .k = t.k.Rows(0, local),
                                   .v = t.v.Rows(0, local),
                                   .o = t.o.Rows(0, local),
                                   .lse = t.lse.Rows(0, local),
                                   .d_o = t.d_o.Rows(0, local),
                                   .dq = t.dq.Rows(0, local),
                                   .dk = t.dk.Rows(0, local),
                                   .dv = t.dv.Rows(0, local)},
                                  stream));
      }
      if (mb.ring.empty()) return {};
      SKRULL_EXEC_RETURN_IF_ERROR(StepGradients(mb, step, t, all, stream));
      SKRULL_EXEC_RETURN_IF_ERROR(ShiftSums(mb, step, all, stream));
    }
    SKRULL_EXEC_RETURN_IF_ERROR(device()->Wait(stream, sums_arrived_));
    for (size_t b = 0; b < mb.blocks.size(); ++b) {
      if (mb.blocks[b].deliver.count == 0) continue;
      const BlockMaps& maps = mb.maps.blocks[b];
      void* home = Sums(maps, static_cast<size_t>(maps.block.degree));
      const DType dtype = core_->accumulator();
      SKRULL_EXEC_RETURN_IF_ERROR(device()->GatherRows(
          std::array{
              RowPair{t.dk, core_->KvHalf(home, dtype, maps.slot_rows, 0)},
              RowPair{t.dv, core_->KvHalf(home, dtype, maps.slot_rows, 1)}},
          mb.blocks[b].deliver, stream));
    }
    if (sharded == 0) return {};
    return device()->GatherRows(
        std::array{RowPair{t.dq.Rows(local, sharded), all.dq_sum}},
        mb.ring[0].results, stream);
  }

 private:
  // Rows of one step's call, and sums over the steps for the sharded rows.
  struct Scratch {
    Tensor q, k, v, o, lse, d_o, dq, dk, dv;
    Tensor o_sum, lse_sum, dq_sum;

    // As many rows as the call has.
    Scratch Cut(const SegmentBounds& bounds) const {
      Scratch part = *this;
      for (Tensor* tensor :
           {&part.q, &part.o, &part.lse, &part.d_o, &part.dq}) {
        tensor->rows = bounds.total_q;
      }
      for (Tensor* tensor : {&part.k, &part.v, &part.dk, &part.dv}) {
        tensor->rows = bounds.total_kv;
      }
      return part;
    }
  };

  Device* device() const { return core_->device(); }

  int64_t SlotBytes(const BlockMaps& maps, DType dtype) const {
    return maps.slot_rows * core_->kv_row_elements() * SizeOf(dtype);
  }
  void* Keys(const BlockMaps& maps, size_t step) const {
    return core_->channel(maps).buffers[kKeys + step % 2].data();
  }
  void* Sums(const BlockMaps& maps, size_t step) const {
    return core_->channel(maps).buffers[kSums + step % 2].data();
  }

  Scratch TakeScratch(const MicroBatchState& mb, Arena* arena) const {
    const AttentionProblem& p = core_->problem();
    const DType sum = core_->accumulator();
    const int64_t rows = mb.maps.rows - mb.maps.local_rows;
    int64_t keys = 0;
    for (const RingStepRuns& runs : mb.ring) {
      keys = std::max(keys, runs.segments.bounds.total_kv);
    }
    const auto take = [&](DType dtype, int64_t count, int32_t heads,
                          int32_t dim) {
      return arena->Take(dtype, count, heads, dim);
    };
    const int64_t tail = core_->backend()->kv_tail_rows();
    Scratch s;
    s.k = take(p.dtype, keys + tail, p.kv_heads, p.head_dim);
    s.v = take(p.dtype, keys + tail, p.kv_heads, p.head_dim);
    s.dk = take(p.dtype, keys, p.kv_heads, p.head_dim);
    s.dv = take(p.dtype, keys, p.kv_heads, p.head_dim);
    s.q = take(p.dtype, rows, p.q_heads, p.head_dim);
    s.o = take(p.dtype, rows, p.q_heads, p.head_dim);
    s.d_o = take(p.dtype, rows, p.q_heads, p.head_dim);
    s.dq = take(p.dtype, rows, p.q_heads, p.head_dim);
    s.o_sum = take(sum, rows, p.q_heads, p.head_dim);
    s.dq_sum = take(sum, rows, p.q_heads, p.head_dim);
    s.lse = TakeLse(rows, arena);
    s.lse_sum = TakeLse(rows, arena);
    return s;
  }

  Tensor TakeLse(int64_t rows, Arena* arena) const {
    Tensor lse =
        arena->Take(core_->accumulator(), rows, core_->problem().q_heads, 1);
    if (core_->backend()->lse_order() == LseOrder::kHeadMajor) {
      lse.row_stride = 1;
      lse.head_stride = rows;
    }
    return lse;
  }

  Status Pack(const MicroBatchState& mb, const Tensor& k, const Tensor& v,
              Stream stream) {
    const DType dtype = core_->dtype();
    for (size_t b = 0; b < mb.blocks.size(); ++b) {
      if (mb.blocks[b].pack.count == 0) continue;
      const BlockMaps& maps = mb.maps.blocks[b];
      void* slot = Keys(maps, 0);
      SKRULL_EXEC_RETURN_IF_ERROR(device()->GatherRows(
          std::array{RowPair{core_->KvHalf(slot, dtype, maps.slot_rows, 0), k},
                     RowPair{core_->KvHalf(slot, dtype, maps.slot_rows, 1), v}},
          mb.blocks[b].pack, stream));
    }
    return {};
  }

  // Waits for the slots of the step and copies the keys that it needs.
  Status TakeKeys(const MicroBatchState& mb, size_t step, const Scratch& all,
                  Stream stream) {
    if (step > 0) {
      SKRULL_EXEC_RETURN_IF_ERROR(device()->Wait(stream, keys_arrived_));
    }
    const RingStepRuns& runs = mb.ring[step];
    for (size_t b = 0; b < runs.keys.size(); ++b) {
      if (runs.keys[b].take.count == 0) continue;
      const BlockMaps& maps = mb.maps.blocks[b];
      void* slot = Keys(maps, step);
      const DType dtype = core_->dtype();
      SKRULL_EXEC_RETURN_IF_ERROR(device()->GatherRows(
          std::array{
              RowPair{all.k, core_->KvHalf(slot, dtype, maps.slot_rows, 0)},
              RowPair{all.v, core_->KvHalf(slot, dtype, maps.slot_rows, 1)}},
          runs.keys[b].take, stream));
    }
    const int64_t rows = runs.segments.bounds.total_kv;
    const int64_t tail = core_->backend()->kv_tail_rows();
    if (rows == 0 || tail == 0) return {};
    for (const Tensor& keys : {all.k, all.v}) {
      const Tensor behind = keys.Rows(rows, tail);
      SKRULL_EXEC_RETURN_IF_ERROR(device()->Zero(
          behind.data, tail * behind.row_stride * SizeOf(behind.dtype),
          stream));
    }
    return {};
  }

  // Passes the step's slots on, where another step follows.
  Status ShiftKeys(const MicroBatchState& mb, size_t step, Stream stream) {
    SKRULL_EXEC_RETURN_IF_ERROR(core_->CommFollows(stream));
    for (const BlockMaps& maps : mb.maps.blocks) {
      if (step + 1 >= static_cast<size_t>(maps.block.degree)) continue;
      SKRULL_EXEC_RETURN_IF_ERROR(core_->channel(maps).communicator->Shift(
          Keys(maps, step), Keys(maps, step + 1),
          SlotBytes(maps, core_->dtype()), core_->comm()));
    }
    return device()->Record(keys_arrived_, core_->comm());
  }

  // This rank's part of the gradients of the step's slots.
  Status StepGradients(const MicroBatchState& mb, size_t step,
                       const BackwardTensors& t, const Scratch& all,
                       Stream stream) {
    const RingStepRuns& runs = mb.ring[step];
    if (runs.segments.bounds.count == 0) return {};
    const int32_t local = mb.maps.local_rows;
    const int32_t sharded = mb.maps.rows - local;
    const Scratch part = all.Cut(runs.segments.bounds);
    SKRULL_EXEC_RETURN_IF_ERROR(device()->GatherRows(
        std::array{RowPair{part.q, t.q.Rows(local, sharded)},
                   RowPair{part.o, t.o.Rows(local, sharded)},
                   RowPair{part.d_o, t.d_o.Rows(local, sharded)},
                   RowPair{part.lse, t.lse.Rows(local, sharded)}},
        runs.queries, stream));
    SKRULL_EXEC_RETURN_IF_ERROR(core_->AttendBackward(runs.segments,
                                                      {.q = part.q,
                                                       .k = part.k,
                                                       .v = part.v,
                                                       .o = part.o,
                                                       .lse = part.lse,
                                                       .d_o = part.d_o,
                                                       .dq = part.dq,
                                                       .dk = part.dk,
                                                       .dv = part.dv},
                                                      stream));
    return device()->AddRows(std::array{RowPair{all.dq_sum, part.dq}},
                             runs.results, stream);
  }

  // Adds them to the sums that come with the slots, and passes those on.
  Status ShiftSums(const MicroBatchState& mb, size_t step, const Scratch& all,
                   Stream stream) {
    if (step > 0) {
      SKRULL_EXEC_RETURN_IF_ERROR(device()->Wait(stream, sums_arrived_));
    }
    const DType dtype = core_->accumulator();
    const RingStepRuns& runs = mb.ring[step];
    for (size_t b = 0; b < runs.keys.size(); ++b) {
      if (runs.keys[b].give.count == 0) continue;
      const BlockMaps& maps = mb.maps.blocks[b];
      void* sums = Sums(maps, step);
      SKRULL_EXEC_RETURN_IF_ERROR(device()->AddRows(
          std::array{
              RowPair{core_->KvHalf(sums, dtype, maps.slot_rows, 0), all.dk},
              RowPair{core_->KvHalf(sums, dtype, maps.slot_rows, 1), all.dv}},
          runs.keys[b].give, stream));
    }
    SKRULL_EXEC_RETURN_IF_ERROR(core_->CommFollows(stream));
    for (const BlockMaps& maps : mb.maps.blocks) {
      if (step >= static_cast<size_t>(maps.block.degree)) continue;
      SKRULL_EXEC_RETURN_IF_ERROR(core_->channel(maps).communicator->Shift(
          Sums(maps, step), Sums(maps, step + 1), SlotBytes(maps, dtype),
          core_->comm()));
    }
    return device()->Record(sums_arrived_, core_->comm());
  }

  const std::unique_ptr<EngineCore> core_;
  Event keys_arrived_;  // the last shift of K and V
  Event sums_arrived_;  // the last shift of dK and dV
};

}  // namespace

std::unique_ptr<Engine> NewRingEngine(std::unique_ptr<EngineCore> core) {
  return std::make_unique<RingEngine>(std::move(core));
}

}  // namespace skrull::exec::internal
