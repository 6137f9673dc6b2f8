#include "skrull/cuda/attention/cudnn/graph_key.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdio>

namespace skrull::exec::cudnn {
namespace {

constexpr int64_t kTileRows = 128;
constexpr int64_t kRowUnit = 32768;

int64_t NextPowerOfTwo(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
}

int64_t RowBucket(int64_t rows) {
  if (rows > kRowUnit) return (rows + kRowUnit - 1) / kRowUnit * kRowUnit;
  return std::max(kTileRows, NextPowerOfTwo(rows));
}

int64_t LengthBucket(int64_t longest, int64_t row_bucket) {
  return std::clamp(NextPowerOfTwo(longest), kTileRows, row_bucket);
}

}  // namespace

const char* RoleName(Role role) {
  constexpr const char* kNames[kRoles] = {"q",   "k",  "v",  "o", "d_o",
                                          "lse", "dq", "dk", "dv"};
  return kNames[Index(role)];
}

Buckets BucketsOf(const SegmentBounds& bounds) {
  Buckets buckets;
  buckets.segments =
      std::min<int64_t>(NextPowerOfTwo(bounds.count), kMaxSegments);
  buckets.total_q = RowBucket(bounds.total_q);
  buckets.total_kv = RowBucket(bounds.total_kv);
  buckets.max_q = LengthBucket(bounds.max_q, buckets.total_q);
  buckets.max_kv = LengthBucket(bounds.max_kv, buckets.total_kv);
  return buckets;
}

std::string ToText(const GraphKey& key) {
  char text[512];
  const Buckets& b = key.buckets;
  // %a writes a double without a loss.
  std::snprintf(
      text, sizeof(text),
      "pass=%d dtype=%d mask=%d deterministic=%d q_heads=%d kv_heads=%d "
      "head_dim=%d scale=%a segments=%" PRId64 " max_q=%" PRId64
      " max_kv=%" PRId64 " total_q=%" PRId64 " total_kv=%" PRId64,
      static_cast<int>(key.pass), static_cast<int>(key.dtype),
      static_cast<int>(key.mask), key.deterministic ? 1 : 0, key.q_heads,
      key.kv_heads, key.head_dim, key.scale, b.segments, b.max_q, b.max_kv,
      b.total_q, b.total_kv);
  std::string line = text;
  for (const Role role : kAllRoles) {
    if (!IsPartOf(role, key.pass)) continue;
    line += std::string(" ") + RoleName(role) + "=" +
            std::to_string(key.of(role).row) + "," +
            std::to_string(key.of(role).head);
  }
  return line;
}

OffsetLists OffsetListsOf(const GraphKey& key) {
  OffsetLists lists;
  for (const Role role : kAllRoles) {
    int32_t& index = lists.of_role[Index(role)];
    index = -1;
    if (!IsPartOf(role, key.pass)) continue;
    const OffsetList wanted{HasKeyRows(role), key.of(role).row};
    OffsetList* const end = lists.lists + lists.count;
    index =
        static_cast<int32_t>(std::find(lists.lists, end, wanted) - lists.lists);
    if (index == lists.count) lists.lists[lists.count++] = wanted;
  }
  return lists;
}

}  // namespace skrull::exec::cudnn
