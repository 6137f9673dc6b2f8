#include "skrull/cuda/chunk_maps.h"

#include <cstddef>
#include <string>
#include <utility>

#include "skrull/cuda/run_builder.h"
#include "skrull/planner/rank_plan.h"

namespace skrull::exec {
namespace {

Status Refuse(const RankChunk& chunk, const std::string& what) {
  return InvalidArgument("chunk " + std::to_string(chunk.chunk) + ": " + what);
}

// What the pieces' own layout does not tell.
Status CheckChunk(const RankChunk& chunk, int64_t begin) {
  if (chunk.segments.empty()) return Refuse(chunk, "it has no segments");
  for (const RankSegment& segment : chunk.segments) {
    if (segment.block != chunk.segments[0].block) {
      return Refuse(chunk, "its sequences are on several blocks");
    }
  }
  const bool dependent = chunk.group_size > 1;
  if (chunk.group_index < 0 || chunk.group_index >= chunk.group_size) {
    return Refuse(chunk, "it is chunk " + std::to_string(chunk.group_index) +
                             " of " + std::to_string(chunk.group_size));
  }
  if (!dependent) {
    int64_t tokens = 0;
    for (const RankSegment& segment : chunk.segments) {
      tokens += segment.token_count;
    }
    if (tokens == chunk.token_count) return {};
    return Refuse(chunk, "its sequences have " + std::to_string(tokens) +
                             " tokens, where token_count is " +
                             std::to_string(chunk.token_count));
  }
  const int64_t all = chunk.segments[0].token_count;
  if (chunk.segments.size() > 1) {
    return Refuse(chunk, "it holds pieces of several sequences");
  }
  if (chunk.token_count < 1 || begin < 0 || begin > all - chunk.token_count) {
    return Refuse(chunk, "it holds " + std::to_string(chunk.token_count) +
                             " tokens from token " + std::to_string(begin) +
                             " on of a sequence of " + std::to_string(all));
  }
  return {};
}

// The pieces as sequences of their own.
RankMicroBatch PiecesOf(const RankChunk& chunk, int64_t begin) {
  RankMicroBatch pieces;
  pieces.segments = chunk.segments;
  pieces.row_count = chunk.row_count;
  if (chunk.group_size == 1) return pieces;
  for (RankSegment& segment : pieces.segments) {
    segment.token_count = static_cast<int32_t>(chunk.token_count);
    for (TokenRange* range : {&segment.low, &segment.high}) {
      range->begin -= begin;
      range->end -= begin;
    }
  }
  return pieces;
}

// Calls visit(gathered row, store row, count) for each zigzag range of each
// rank's slot, by gathered row. `first`: store row of the first piece.
template <class Visit>
void VisitSlots(const RankMicroBatch& pieces, int32_t slot_rows, int64_t first,
                const Visit& visit) {
  const int32_t degree = pieces.segments[0].block.degree;
  for (int32_t r = 0; r < degree; ++r) {
    int64_t row = int64_t{r} * slot_rows;
    int64_t base = first;
    int32_t rotation = 0;
    for (const RankSegment& piece : pieces.segments) {
      const ZigzagShard shard = Shard(piece.token_count, degree, rotation, r);
      for (const TokenRange& range : {shard.low, shard.high}) {
        visit(static_cast<int32_t>(row),
              static_cast<int32_t>(base + range.begin),
              static_cast<int32_t>(range.size()));
        row += range.size();
      }
      rotation = NextRotation(piece.token_count, degree, rotation);
      base += piece.token_count;
    }
  }
}

// A call of one segment, on the store's rows as they lie.
ChunkCall PrefixCall(int64_t first_query, int64_t queries, int64_t keys,
                     bool dependent) {
  ChunkCall call;
  call.segments.Add(static_cast<int32_t>(queries), static_cast<int32_t>(keys));
  call.first_query = static_cast<int32_t>(first_query);
  if (dependent) AddRun(&call.add, 0, 0, static_cast<int32_t>(keys));
  return call;
}

// The calls of an only piece on several ranks.
void AddPrefixCalls(const RankSegment& piece, int64_t begin, ChunkMaps* maps) {
  maps->keys = KeySource::kStore;
  int64_t query = 0;
  for (const TokenRange& range : {piece.low, piece.high}) {
    if (range.size() == 0) continue;
    ChunkCall call =
        PrefixCall(query, range.size(), begin + range.end, maps->dependent);
    const int32_t keys = call.segments.cu_kv.back();
    // A dependent chunk's are added to the store's before the next call.
    if (!maps->dependent) call.first_gradient = maps->gradient_rows;
    maps->gradient_rows = call.first_gradient + keys;
    maps->calls.push_back(std::move(call));
    query += range.size();
  }
}

// The call of several pieces on several ranks.
void AddCopiedCall(const RankMicroBatch& pieces, const SegmentList& segments,
                   ChunkMaps* maps) {
  maps->keys = KeySource::kCopies;
  int64_t row = 0;
  int64_t base = 0;
  for (const RankSegment& piece : pieces.segments) {
    for (const TokenRange& range : {piece.low, piece.high}) {
      if (range.size() == 0) continue;
      AddRun(&maps->copies, static_cast<int32_t>(row),
             static_cast<int32_t>(base), static_cast<int32_t>(range.end));
      row += range.end;
    }
    base += piece.token_count;
  }
  if (segments.empty()) return;
  maps->gradient_rows = segments.cu_kv.back();
  maps->calls.push_back({.segments = segments, .add = {}});
}

void FillExchanged(const RankMicroBatch& pieces, MicroBatchMaps base,
                   int64_t begin, ChunkMaps* maps) {
  BlockMaps& block = base.blocks[0];
  maps->slot_rows = block.slot_rows;
  maps->pack = std::move(block.pack);
  maps->deliver = std::move(block.deliver);
  VisitSlots(pieces, maps->slot_rows, begin,
             [&](int32_t gathered, int32_t store, int32_t count) {
               AddRun(&maps->store, store, gathered, count);
             });
  if (pieces.segments.size() == 1) {
    AddPrefixCalls(pieces.segments[0], begin, maps);
  } else {
    AddCopiedCall(pieces, base.sharded, maps);
  }
  if (!maps->dependent) {
    maps->fold = std::move(block.fold);
    return;
  }
  int32_t filled = 0;
  const auto pad = [&](int32_t end) {
    AddFold(&maps->fold, filled, end - filled, -1, -1);
    filled = end;
  };
  VisitSlots(pieces, maps->slot_rows, begin,
             [&](int32_t gathered, int32_t store, int32_t count) {
               pad(gathered);
               AddFold(&maps->fold, gathered, count, store, -1);
               filled += count;
             });
  pad(static_cast<int32_t>(maps->gathered_rows()));
}

}  // namespace

Result<ChunkMaps> BuildChunkMaps(const RankChunk& chunk, int32_t rank,
                                 int64_t begin) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckChunk(chunk, begin));
  const RankMicroBatch pieces = PiecesOf(chunk, begin);
  Result<MicroBatchMaps> base = BuildMaps(pieces, rank, 1);
  if (!base.ok()) {
    return Refuse(
        chunk,
        (begin == 0 ? "" : "after " + std::to_string(begin) + " tokens, ") +
            base.status().message());
  }
  ChunkMaps maps;
  maps.block = pieces.segments[0].block;
  maps.rows = base->rows;
  maps.dependent = chunk.group_size > 1;
  maps.store_end = static_cast<int32_t>(begin + chunk.token_count);
  if (!base->blocks.empty()) {
    FillExchanged(pieces, *std::move(base), begin, &maps);
    return maps;
  }
  if (!maps.dependent) {
    maps.calls.push_back({.segments = std::move(base->local), .add = {}});
    return maps;
  }
  const auto first = static_cast<int32_t>(begin);
  AddRun(&maps.store, first, 0, maps.rows);
  AddRun(&maps.deliver, 0, first, maps.rows);
  maps.keys = KeySource::kStore;
  maps.gradient_rows = maps.store_end;
  maps.calls.push_back(PrefixCall(0, maps.rows, maps.store_end, true));
  return maps;
}

}  // namespace skrull::exec
