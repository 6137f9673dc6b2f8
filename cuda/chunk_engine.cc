// The CP group has two buffers of its communicator: the slot, this rank's rows,
// and the gathered slots of all ranks. Every access is ordered: comm work
// follows the caller's stream up to where it is issued, and the caller's stream
// waits for it before it goes on.
#include "skrull/cuda/chunk_engine.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace skrull::exec::internal {
namespace {

constexpr size_t kSlot = 0;
constexpr size_t kGathered = 1;

}  // namespace

struct ChunkEngine::Scene {
  const ChunkMaps& maps;
  const ChunkRuns& runs;
  bool begins_gradients = false;
  // The group's rows in the store. K and V with the tail behind them.
  StoreLayer store;
};

struct ChunkEngine::Keys {
  Tensor k, v;
};

struct ChunkEngine::Scratch {
  Tensor k, v;    // copied keys, with the tail behind them
  Tensor dk, dv;  // of the calls
};

ChunkEngine::~ChunkEngine() {
  if (arrived_.handle != nullptr) device()->DestroyEvent(arrived_);
}

Status ChunkEngine::Reserve(const ChunkStepState& step) {
  if (arrived_.handle == nullptr) {
    Result<Event> event = device()->CreateEvent();
    SKRULL_EXEC_RETURN_IF_ERROR(event.status());
    arrived_ = *event;
  }
  const int64_t row_bytes =
      core_->kv_row_elements() *
      std::max(SizeOf(core_->dtype()), SizeOf(core_->grad_comm_dtype()));
  std::vector<int64_t> channel(2);
  int64_t scratch = 0;
  for (const ProgramChunk& chunk : step.program.chunks) {
    const ChunkMaps& maps = chunk.maps;
    channel[kSlot] = std::max(channel[kSlot], maps.slot_rows * row_bytes);
    channel[kGathered] =
        std::max(channel[kGathered], maps.gathered_rows() * row_bytes);
    Arena sizes(nullptr);
    (void)TakeScratch(maps, &sizes);
    scratch = std::max(scratch, sizes.used());
  }
  if (channel[kSlot] > 0) {
    SKRULL_EXEC_RETURN_IF_ERROR(
        core_->ReserveChannel(step.program.chunks[0].maps.block, channel));
  }
  SKRULL_EXEC_RETURN_IF_ERROR(core_->ReserveScratch(scratch));
  for (const ChunkRuns& runs : step.runs) {
    for (const ChunkCallRuns& call : runs.calls) {
      SKRULL_EXEC_RETURN_IF_ERROR(core_->ReserveAttention(call.segments));
    }
  }
  return store_.Reserve(step.program.store_rows, step.program.gradient_rows,
                        [&] { return core_->Quiesce(); });
}

ChunkEngine::Scene ChunkEngine::SceneOf(const ChunkStepState& step,
                                        int32_t operation,
                                        int32_t layer) const {
  const ProgramOperation& op =
      step.program.operations[static_cast<size_t>(operation)];
  const auto c = static_cast<size_t>(op.chunk);
  const ProgramChunk& chunk = step.program.chunks[c];
  Scene scene{.maps = chunk.maps,
              .runs = step.runs[c],
              .begins_gradients = op.begins_gradients,
              .store = {}};
  if (!chunk.maps.is_stored()) return scene;
  const GroupRows& group = chunk.group;
  const StoreLayer all = store_.layer(layer);
  const int64_t rows = group.rows + core_->backend()->kv_tail_rows();
  const int64_t sums = chunk.maps.dependent ? group.rows : 0;
  scene.store = {.k = all.k.Rows(group.first_row, rows),
                 .v = all.v.Rows(group.first_row, rows),
                 .dk = all.dk.Rows(group.first_gradient_row, sums),
                 .dv = all.dv.Rows(group.first_gradient_row, sums)};
  return scene;
}

ChunkEngine::Scratch ChunkEngine::TakeScratch(const ChunkMaps& maps,
                                              Arena* arena) const {
  const AttentionProblem& p = core_->problem();
  const int64_t copied = maps.copied_rows();
  const int64_t keys =
      copied == 0 ? 0 : copied + core_->backend()->kv_tail_rows();
  const auto take = [&](int64_t rows) {
    return arena->Take(p.dtype, rows, p.kv_heads, p.head_dim);
  };
  Scratch scratch;
  scratch.k = take(keys);
  scratch.v = take(keys);
  scratch.dk = take(maps.gradient_rows);
  scratch.dv = take(maps.gradient_rows);
  return scratch;
}

Status ChunkEngine::Forward(const ChunkStepState& step, int32_t operation,
                            int32_t layer, const ForwardTensors& t,
                            Stream stream) {
  const Scene scene = SceneOf(step, operation, layer);
  const ChunkPass pass =
      step.program.operations[static_cast<size_t>(operation)].pass;
  if (scene.maps.is_stored() && pass != ChunkPass::kRecompute) {
    SKRULL_EXEC_RETURN_IF_ERROR(Store(scene, t.k, t.v, stream));
  }
  Arena arena(core_->scratch());
  const Result<Keys> keys =
      KeysOf(scene, t.k, t.v, TakeScratch(scene.maps, &arena), stream);
  SKRULL_EXEC_RETURN_IF_ERROR(keys.status());
  for (size_t i = 0; i < scene.maps.calls.size(); ++i) {
    const int32_t query = scene.maps.calls[i].first_query;
    const Segments& segments = scene.runs.calls[i].segments;
    const int64_t queries = segments.bounds.total_q;
    SKRULL_EXEC_RETURN_IF_ERROR(
        core_->AttendForward(segments,
                             {.q = t.q.Rows(query, queries),
                              .k = keys->k.Rows(0, segments.bounds.total_kv),
                              .v = keys->v.Rows(0, segments.bounds.total_kv),
                              .o = t.o.Rows(query, queries),
                              .lse = t.lse.Rows(query, queries)},
                             stream));
  }
  return {};
}

Status ChunkEngine::Backward(const ChunkStepState& step, int32_t operation,
                             int32_t layer, const BackwardTensors& t,
                             Stream stream) {
  const Scene scene = SceneOf(step, operation, layer);
  if (!scene.maps.is_stored()) {
    return core_->AttendBackward(scene.runs.calls[0].segments, t, stream);
  }
  if (scene.begins_gradients) {
    SKRULL_EXEC_RETURN_IF_ERROR(ZeroRows(scene.store.dk, stream));
    SKRULL_EXEC_RETURN_IF_ERROR(ZeroRows(scene.store.dv, stream));
  }
  Arena arena(core_->scratch());
  const Scratch scratch = TakeScratch(scene.maps, &arena);
  const Result<Keys> keys = KeysOf(scene, t.k, t.v, scratch, stream);
  SKRULL_EXEC_RETURN_IF_ERROR(keys.status());
  for (size_t i = 0; i < scene.maps.calls.size(); ++i) {
    const ChunkCall& call = scene.maps.calls[i];
    const ChunkCallRuns& runs = scene.runs.calls[i];
    const int32_t query = call.first_query;
    const int64_t queries = runs.segments.bounds.total_q;
    const int64_t key_rows = runs.segments.bounds.total_kv;
    const Tensor dk = scratch.dk.Rows(call.first_gradient, key_rows);
    const Tensor dv = scratch.dv.Rows(call.first_gradient, key_rows);
    SKRULL_EXEC_RETURN_IF_ERROR(
        core_->AttendBackward(runs.segments,
                              {.q = t.q.Rows(query, queries),
                               .k = keys->k.Rows(0, key_rows),
                               .v = keys->v.Rows(0, key_rows),
                               .o = t.o.Rows(query, queries),
                               .lse = t.lse.Rows(query, queries),
                               .d_o = t.d_o.Rows(query, queries),
                               .dq = t.dq.Rows(query, queries),
                               .dk = dk,
                               .dv = dv},
                              stream));
    if (runs.add.count == 0) continue;
    const RowPair pairs[] = {{scene.store.dk, dk}, {scene.store.dv, dv}};
    SKRULL_EXEC_RETURN_IF_ERROR(device()->AddRows(pairs, runs.add, stream));
  }
  return Deliver(scene, scratch, t, stream);
}

Status ChunkEngine::ZeroRows(const Tensor& rows, Stream stream) {
  if (rows.rows == 0) return {};
  return device()->Zero(
      rows.data, rows.rows * rows.row_stride * SizeOf(rows.dtype), stream);
}

Status ChunkEngine::JoinComm(Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(device()->Record(arrived_, core_->comm()));
  return device()->Wait(stream, arrived_);
}

Status ChunkEngine::Store(const Scene& scene, const Tensor& k, const Tensor& v,
                          Stream stream) {
  const ChunkMaps& maps = scene.maps;
  Keys rows{.k = k, .v = v};
  if (maps.is_exchanged()) {
    const Channel& channel = core_->channel(maps.block);
    void* slot = channel.buffers[kSlot].data();
    void* gathered = channel.buffers[kGathered].data();
    const DType dtype = core_->dtype();
    if (scene.runs.pack.count > 0) {
      const RowPair pairs[] = {
          {core_->KvHalf(slot, dtype, maps.slot_rows, 0), k},
          {core_->KvHalf(slot, dtype, maps.slot_rows, 1), v}};
      SKRULL_EXEC_RETURN_IF_ERROR(
          device()->GatherRows(pairs, scene.runs.pack, stream));
    }
    SKRULL_EXEC_RETURN_IF_ERROR(core_->CommFollows(stream));
    SKRULL_EXEC_RETURN_IF_ERROR(channel.communicator->AllGather(
        slot, gathered,
        maps.slot_rows * core_->kv_row_elements() * SizeOf(dtype),
        core_->comm()));
    SKRULL_EXEC_RETURN_IF_ERROR(JoinComm(stream));
    rows = {.k = core_->KvHalf(gathered, dtype, maps.gathered_rows(), 0),
            .v = core_->KvHalf(gathered, dtype, maps.gathered_rows(), 1)};
  }
  const RowPair pairs[] = {{scene.store.k, rows.k}, {scene.store.v, rows.v}};
  SKRULL_EXEC_RETURN_IF_ERROR(
      device()->GatherRows(pairs, scene.runs.store, stream));
  // What lies behind is the next chunk's, which comes later, or nobody's.
  const int64_t tail = core_->backend()->kv_tail_rows();
  SKRULL_EXEC_RETURN_IF_ERROR(
      ZeroRows(scene.store.k.Rows(maps.store_end, tail), stream));
  return ZeroRows(scene.store.v.Rows(maps.store_end, tail), stream);
}

Result<ChunkEngine::Keys> ChunkEngine::KeysOf(const Scene& scene,
                                              const Tensor& k, const Tensor& v,
                                              const Scratch& scratch,
                                              Stream stream) {
  switch (scene.maps.keys) {
    case KeySource::kRows:
      return Keys{.k = k, .v = v};
    case KeySource::kStore:
      return Keys{.k = scene.store.k, .v = scene.store.v};
    case KeySource::kCopies:
      break;
  }
  if (scene.runs.copies.count > 0) {
    const RowPair pairs[] = {{scratch.k, scene.store.k},
                             {scratch.v, scene.store.v}};
    SKRULL_EXEC_RETURN_IF_ERROR(
        device()->GatherRows(pairs, scene.runs.copies, stream));
    const int64_t copied = scene.maps.copied_rows();
    const int64_t tail = core_->backend()->kv_tail_rows();
    SKRULL_EXEC_RETURN_IF_ERROR(ZeroRows(scratch.k.Rows(copied, tail), stream));
    SKRULL_EXEC_RETURN_IF_ERROR(ZeroRows(scratch.v.Rows(copied, tail), stream));
  }
  return Keys{.k = scratch.k, .v = scratch.v};
}

Status ChunkEngine::Deliver(const Scene& scene, const Scratch& scratch,
                            const BackwardTensors& t, Stream stream) {
  const ChunkMaps& maps = scene.maps;
  // The store's gradients hold the calls' own, too.
  Keys sums = maps.dependent ? Keys{.k = scene.store.dk, .v = scene.store.dv}
                             : Keys{.k = scratch.dk, .v = scratch.dv};
  if (maps.is_exchanged()) {
    const Channel& channel = core_->channel(maps.block);
    void* slot = channel.buffers[kSlot].data();
    void* gathered = channel.buffers[kGathered].data();
    const DType dtype = core_->grad_comm_dtype();
    const int64_t rows = maps.gathered_rows();
    const RowPair pairs[] = {{core_->KvHalf(gathered, dtype, rows, 0), sums.k},
                             {core_->KvHalf(gathered, dtype, rows, 1), sums.v}};
    SKRULL_EXEC_RETURN_IF_ERROR(
        device()->FoldRows(pairs, scene.runs.fold, stream));
    SKRULL_EXEC_RETURN_IF_ERROR(core_->CommFollows(stream));
    SKRULL_EXEC_RETURN_IF_ERROR(channel.communicator->ReduceScatter(
        gathered, slot, maps.slot_rows * core_->kv_row_elements(), dtype,
        core_->comm()));
    SKRULL_EXEC_RETURN_IF_ERROR(JoinComm(stream));
    sums = {.k = core_->KvHalf(slot, dtype, maps.slot_rows, 0),
            .v = core_->KvHalf(slot, dtype, maps.slot_rows, 1)};
  }
  if (scene.runs.deliver.count == 0) return {};
  const RowPair pairs[] = {{t.dk, sums.k}, {t.dv, sums.v}};
  return device()->GatherRows(pairs, scene.runs.deliver, stream);
}

}  // namespace skrull::exec::internal
