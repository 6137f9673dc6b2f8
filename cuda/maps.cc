#include "skrull/cuda/maps.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "skrull/cuda/run_builder.h"

namespace skrull::exec {
namespace {

constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();

std::string Name(const RankSegment& segment) {
  return "sequence " + std::to_string(segment.sequence) + " (" +
         std::to_string(segment.token_count) + " tokens on ranks [" +
         std::to_string(segment.block.first_rank) + ", " +
         std::to_string(int64_t{segment.block.first_rank} +
                        segment.block.degree) +
         "))";
}

// A sharded sequence: its chunks, and where its keys lie in the sharded call.
struct Sharded {
  int32_t row = 0;              // its first row on this rank
  std::vector<int32_t> bounds;  // chunk c is [bounds[c], bounds[c+1])
  // First key row of the segment of the low and the high chunk; -1 where the
  // chunk is empty.
  int32_t low_keys = -1;
  int32_t high_keys = -1;

  int32_t ChunkSize(int32_t chunk) const {
    const auto c = static_cast<size_t>(chunk);
    return bounds[c + 1] - bounds[c];
  }
  int32_t ChunkBegin(int32_t chunk) const {
    return bounds[static_cast<size_t>(chunk)];
  }
};

// The sequences of one block, in placement order.
struct BlockSequences {
  int32_t rotation = 0;
  std::vector<Sharded> sequences;
};

std::vector<int32_t> ChunkBounds(int32_t token_count, int32_t degree,
                                 int32_t rotation) {
  const auto chunks = static_cast<size_t>(2 * int64_t{degree});
  std::vector<int32_t> bounds(chunks + 1);
  for (int32_t r = 0; r < degree; ++r) {
    const ZigzagShard shard = Shard(token_count, degree, rotation, r);
    const auto low = static_cast<size_t>(r);
    bounds[low] = static_cast<int32_t>(shard.low.begin);
    bounds[chunks - 1 - low] = static_cast<int32_t>(shard.high.begin);
  }
  bounds[chunks] = token_count;
  return bounds;
}

// A rank's low chunk is its rank in the block, its high chunk mirrors it.
int32_t HighChunk(int32_t degree, int32_t rank_in_block) {
  return 2 * degree - 1 - rank_in_block;
}

// Gathered rows as they follow each other: for each rank its sequences, low
// chunk then high chunk. Calls visit(rank, sequence, chunk, gathered row).
template <class Visit>
void VisitSlots(const BlockMaps& maps, const BlockSequences& block,
                const Visit& visit) {
  for (int32_t r = 0; r < maps.block.degree; ++r) {
    int32_t row = r * maps.slot_rows;
    for (size_t k = 0; k < block.sequences.size(); ++k) {
      for (const int32_t chunk : {r, HighChunk(maps.block.degree, r)}) {
        visit(r, k, chunk, row);
        row += block.sequences[k].ChunkSize(chunk);
      }
    }
  }
}

// REQUIRES: the gathered rows fit int32.
void FillBlock(const BlockSequences& block, BlockMaps* maps) {
  const int32_t degree = maps->block.degree;
  const int32_t r = maps->rank_in_block;
  const int32_t high = HighChunk(degree, r);
  // Where each chunk of each sequence lies in the gathered rows.
  const auto chunks = static_cast<size_t>(2 * degree);
  std::vector<int32_t> gathered(block.sequences.size() * chunks);
  int32_t filled = 0;
  VisitSlots(
      *maps, block, [&](int32_t owner, size_t k, int32_t chunk, int32_t row) {
        gathered[k * chunks + static_cast<size_t>(chunk)] = row;
        // The pad row of the slot before.
        if (filled < owner * maps->slot_rows) {
          AddFold(&maps->fold, filled, row - filled, -1, -1);
        }
        const Sharded& s = block.sequences[k];
        const auto keys = [&](int32_t first, int32_t last_chunk) {
          return first >= 0 && chunk <= last_chunk ? first + s.ChunkBegin(chunk)
                                                   : -1;
        };
        const int32_t size = s.ChunkSize(chunk);
        AddFold(&maps->fold, row, size, keys(s.high_keys, high),
                keys(s.low_keys, r));
        filled = row + size;
      });
  AddFold(&maps->fold, filled,
          static_cast<int32_t>(maps->gathered_rows()) - filled, -1, -1);

  int32_t slot_row = 0;
  for (size_t k = 0; k < block.sequences.size(); ++k) {
    const Sharded& s = block.sequences[k];
    const int32_t rows = s.ChunkSize(r) + s.ChunkSize(high);
    AddRun(&maps->pack, slot_row, s.row, rows);
    AddRun(&maps->deliver, s.row, slot_row, rows);
    slot_row += rows;
    for (const auto& [last, first_key] :
         {std::pair(r, s.low_keys), std::pair(high, s.high_keys)}) {
      if (first_key < 0) continue;
      for (int32_t c = 0; c <= last; ++c) {
        AddRun(&maps->unpack, first_key + s.ChunkBegin(c),
               gathered[k * chunks + static_cast<size_t>(c)], s.ChunkSize(c));
      }
    }
  }
  maps->rows = slot_row;
}

// Cuts `lengths` after the prefix whose share of the FLOPs, which go with the
// squares, is nearest to `share`; the shorter one if two are.
size_t SplitByFlops(std::span<const int32_t> lengths, double share) {
  double total = 0;
  for (const int32_t n : lengths) total += double(n) * n;
  double sum = 0;
  size_t best = 0;
  double best_miss = total * share;
  for (size_t i = 0; i < lengths.size(); ++i) {
    sum += double(lengths[i]) * lengths[i];
    const double miss =
        sum > total * share ? sum - total * share : total * share - sum;
    if (miss < best_miss) {
      best = i + 1;
      best_miss = miss;
    }
  }
  return best;
}

// OK if the segment can be one of `rank`'s.
Status CheckSegment(const RankSegment& segment, int32_t rank,
                    int32_t rotation) {
  const Block block = segment.block;
  const int64_t rank_in_block = int64_t{rank} - block.first_rank;
  if (segment.token_count < 1 || block.degree < 1 || block.first_rank < 0 ||
      block.degree > kMaxRows / 2) {
    return InvalidArgument(Name(segment) + " is no placement");
  }
  if (rank_in_block < 0 || rank_in_block >= block.degree) {
    return InvalidArgument(Name(segment) + " is not on rank " +
                           std::to_string(rank));
  }
  ZigzagShard expected{.low = {0, segment.token_count},
                       .high = {segment.token_count, segment.token_count}};
  if (block.degree > 1) {
    expected = Shard(segment.token_count, block.degree, rotation,
                     static_cast<int32_t>(rank_in_block));
  }
  if (segment.low == expected.low && segment.high == expected.high) return {};
  const auto text = [](const TokenRange& range) {
    return "[" + std::to_string(range.begin) + ", " +
           std::to_string(range.end) + ")";
  };
  return InvalidArgument(Name(segment) + " has " + text(segment.low) + " and " +
                         text(segment.high) + " on rank " +
                         std::to_string(rank) + ", where the layout has " +
                         text(expected.low) + " and " + text(expected.high));
}

}  // namespace

void SegmentList::Add(int32_t q_rows, int32_t kv_rows) {
  cu_q.push_back(cu_q.back() + q_rows);
  cu_kv.push_back(cu_kv.back() + kv_rows);
  max_q = std::max(max_q, q_rows);
  max_kv = std::max(max_kv, kv_rows);
}

SegmentBounds SegmentList::bounds() const {
  return {.count = static_cast<int32_t>(cu_q.size()) - 1,
          .max_q = max_q,
          .max_kv = max_kv,
          .total_q = cu_q.back(),
          .total_kv = cu_kv.back(),
          .mask = mask};
}

Result<MicroBatchMaps> BuildMaps(const RankMicroBatch& micro_batch,
                                 int32_t rank, double first_share) {
  MicroBatchMaps maps;
  std::map<Block, BlockSequences> blocks;
  std::vector<int32_t> local_lengths;
  int64_t rows = 0;
  int64_t keys = 0;  // of the sharded call
  for (const RankSegment& segment : micro_batch.segments) {
    BlockSequences* block =
        segment.is_local() ? nullptr : &blocks[segment.block];
    SKRULL_EXEC_RETURN_IF_ERROR(
        CheckSegment(segment, rank, block == nullptr ? 0 : block->rotation));
    rows += segment.rows();
    if (block == nullptr) {
      if (!blocks.empty()) {
        return InvalidArgument(Name(segment) +
                               " is local but follows a sharded sequence");
      }
      if (rows > kMaxRows) break;
      maps.local.Add(segment.token_count, segment.token_count);
      local_lengths.push_back(segment.token_count);
      continue;
    }
    for (const TokenRange& range : {segment.low, segment.high}) {
      if (range.size() > 0) keys += range.end;
    }
    if (rows > kMaxRows || keys > kMaxRows) break;
    const int32_t degree = segment.block.degree;
    Sharded sequence{
        .row = static_cast<int32_t>(rows - segment.rows()),
        .bounds = ChunkBounds(segment.token_count, degree, block->rotation)};
    for (const auto& [range, first_key] :
         {std::pair(segment.low, &sequence.low_keys),
          std::pair(segment.high, &sequence.high_keys)}) {
      if (range.size() == 0) continue;
      *first_key = maps.sharded.cu_kv.back();
      maps.sharded.Add(static_cast<int32_t>(range.size()),
                       static_cast<int32_t>(range.end));
    }
    block->sequences.push_back(std::move(sequence));
    block->rotation =
        NextRotation(segment.token_count, degree, block->rotation);
  }
  if (rows > kMaxRows || keys > kMaxRows) {
    return InvalidArgument("the rows of rank " + std::to_string(rank) +
                           " or their keys are more than 2^31 - 1");
  }
  if (rows != micro_batch.row_count) {
    return InvalidArgument("the segments of rank " + std::to_string(rank) +
                           " have " + std::to_string(rows) +
                           " rows, where row_count is " +
                           std::to_string(micro_batch.row_count));
  }
  maps.rows = static_cast<int32_t>(rows);
  maps.local_rows = maps.local.cu_q.back();
  const size_t cut = blocks.empty() ? local_lengths.size()
                                    : SplitByFlops(local_lengths, first_share);
  for (size_t i = 0; i < local_lengths.size(); ++i) {
    SegmentList& part = i < cut ? maps.local_first : maps.local_second;
    part.Add(local_lengths[i], local_lengths[i]);
  }

  for (const auto& [block, sequences] : blocks) {
    BlockMaps part;
    part.block = block;
    part.rank_in_block = rank - block.first_rank;
    for (const Sharded& s : sequences.sequences) {
      part.token_count += s.bounds.back();
    }
    const int64_t slot = MaxBlockRows(part.token_count, block.degree);
    if (slot * block.degree > kMaxRows) {
      return InvalidArgument("the sequences sharded over ranks [" +
                             std::to_string(block.first_rank) + ", " +
                             std::to_string(block.first_rank + block.degree) +
                             ") have more than 2^31 - 1 tokens");
    }
    part.slot_rows = static_cast<int32_t>(slot);
    FillBlock(sequences, &part);
    maps.blocks.push_back(std::move(part));
  }
  return maps;
}

std::vector<int32_t> RowPositions(std::span<const RankSegment> segments) {
  std::vector<int32_t> positions;
  for (const RankSegment& segment : segments) {
    for (const TokenRange& range : {segment.low, segment.high}) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        positions.push_back(static_cast<int32_t>(i));
      }
    }
  }
  return positions;
}

std::vector<int32_t> RowSequences(std::span<const RankSegment> segments) {
  std::vector<int32_t> sequences;
  for (const RankSegment& segment : segments) {
    sequences.insert(sequences.end(), static_cast<size_t>(segment.rows()),
                     segment.sequence);
  }
  return sequences;
}

}  // namespace skrull::exec
