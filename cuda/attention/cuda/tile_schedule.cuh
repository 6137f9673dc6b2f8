// Which block works on which tile: rows of segments, cut into tiles, heavy ones
// first. For each head the same tiles; block b works for head b % heads on the
// tile of slot b / heads, so that the heads which share keys run together.
//
// A GPU starts blocks in the order of their numbers as others end. If the heavy
// ones come first, the last to end are light, and no long tile runs alone at
// the end. Up to kMaxSortedSegments segments are sorted by the rows on their
// other side, which the heaviest of their tiles walks; within a segment the
// tiles are in order of weight anyway. With more segments, each block finds its
// own by bisection of cu_seqlens, in their order.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_TILE_SCHEDULE_CUH_
#define SKRULL_CUDA_ATTENTION_CUDA_TILE_SCHEDULE_CUH_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "skrull/cuda/kernels/portable.cuh"

namespace skrull::exec::flash {

// Sorted segments travel as a parameter of the kernel: 8 bytes each, together
// half of the 4 KiB that all GPUs allow. More segments than these, each of at
// least one tile for each head, are several waves of blocks on any GPU; the
// last of them is then a small part of the whole.
inline constexpr int kMaxSortedSegments = 256;

// Passed to kernels by value.
struct TileSchedule {
  int32_t tile_rows = 0;
  int32_t segments = 0;
  // Tiles of one head, and at most `segments` slots without one.
  int64_t slots = 0;
  // Entry i has the slots [first_slot[i], first_slot[i + 1]), the last one all
  // that are left. 0 entries: segments in their own order.
  int32_t entries = 0;
  int32_t first_slot[kMaxSortedSegments];
  int32_t segment[kMaxSortedSegments];
};

// A tile is rows [tile * tile_rows, + tile_rows) of its segment, as far as that
// goes. segment -1: there is none in this slot.
struct SegmentTile {
  int32_t segment = -1;
  int32_t tile = 0;
};

__host__ __device__ inline int32_t TilesOf(int32_t rows, int32_t tile_rows) {
  return static_cast<int32_t>((int64_t{rows} + tile_rows - 1) / tile_rows);
}

// Where segments are in their own order: the first slot of segment s, given
// cu = cu_seqlens[s]. Since floor((a + n) / t) + 1 - floor(a / t) is at least
// ceil(n / t), the n rows from row a on have slots for all of their tiles, with
// no sum over the segments before.
__host__ __device__ inline int64_t FirstSlot(int32_t cu, int32_t s,
                                             int32_t tile_rows) {
  return int64_t{cu / tile_rows} + s;
}

// `cu` is of the rows that are tiled, `cu_other` of those that a tile walks;
// count + 1 entries each, on the host.
inline TileSchedule MakeTileSchedule(const int32_t* cu, const int32_t* cu_other,
                                     int32_t count, int32_t tile_rows) {
  TileSchedule schedule{};
  schedule.tile_rows = tile_rows;
  schedule.segments = count;
  if (count > kMaxSortedSegments) {
    schedule.slots = FirstSlot(cu[count], count, tile_rows);
    return schedule;
  }
  schedule.entries = count;
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return cu_other[a + 1] - cu_other[a] > cu_other[b + 1] - cu_other[b];
  });
  for (int32_t i = 0; i < count; ++i) {
    const int32_t s = order[static_cast<size_t>(i)];
    schedule.segment[i] = s;
    schedule.first_slot[i] = static_cast<int32_t>(schedule.slots);
    schedule.slots += TilesOf(cu[s + 1] - cu[s], tile_rows);
  }
  return schedule;
}

// The tile of a slot in [0, slots). `cu` is that of MakeTileSchedule, readable
// where this runs. `last_first`: a segment's last tile is its heaviest.
__host__ __device__ inline SegmentTile FindTile(const TileSchedule& schedule,
                                                const int32_t* cu, int32_t slot,
                                                bool last_first) {
  const bool sorted = schedule.entries > 0;
  // The last entry, or segment, whose first slot is not behind `slot`.
  int32_t low = 0;
  int32_t high = sorted ? schedule.entries : schedule.segments;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    const int64_t first =
        sorted ? schedule.first_slot[middle]
               : FirstSlot(cu[middle], middle, schedule.tile_rows);
    if (first <= slot) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int32_t s = sorted ? schedule.segment[low] : low;
  const int64_t first = sorted ? schedule.first_slot[low]
                               : FirstSlot(cu[s], s, schedule.tile_rows);
  const int32_t tiles = TilesOf(cu[s + 1] - cu[s], schedule.tile_rows);
  const auto tile = static_cast<int32_t>(slot - first);
  if (tile >= tiles) return {};
  return {s, last_first ? tiles - 1 - tile : tile};
}

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_TILE_SCHEDULE_CUH_
