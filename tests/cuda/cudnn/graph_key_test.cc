// Buckets of calls, and the keys and arrays that follow from them.
#include "skrull/cuda/attention/cudnn/graph_key.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "skrull/cuda/attention/cudnn/segment_arrays.h"

namespace skrull::exec::cudnn::testing {
namespace {

Buckets Of(int32_t count, int32_t max_q, int32_t max_kv, int64_t total_q,
           int64_t total_kv) {
  return BucketsOf({.count = count,
                    .max_q = max_q,
                    .max_kv = max_kv,
                    .total_q = total_q,
                    .total_kv = total_kv,
                    .mask = Mask::kFull});
}

GraphKey SomeKey() {
  GraphKey key{.pass = Pass::kBackward,
               .dtype = DType::kBFloat16,
               .mask = Mask::kCausalBottomRight,
               .deterministic = false,
               .q_heads = 28,
               .kv_heads = 4,
               .head_dim = 128,
               .scale = 0.1,
               .buckets = {4, 256, 512, 1024, 2048},
               .strides = {}};
  for (const Role role : kAllRoles) {
    key.strides[Index(role)] = role == Role::kLse
                                   ? Strides{28, 1}
                                   : Strides{key.heads(role) * 128, 128};
  }
  return key;
}

}  // namespace

TEST_CASE("cudnn buckets: by hand", "[cudnn]") {
  CHECK(Of(1, 1, 1, 1, 1) == Buckets{1, 128, 128, 128, 128});
  CHECK(Of(3, 100, 129, 300, 700) == Buckets{4, 128, 256, 512, 1024});
  CHECK(Of(32, 4096, 4097, 32768, 32769) ==
        Buckets{32, 4096, 8192, 32768, 65536});
  // The longest segment is no longer than all rows.
  CHECK(Of(2, 70000, 70000, 70001, 98305) ==
        Buckets{2, 98304, 131072, 98304, 131072});
  CHECK(Of(40000, 1, 2000000000, 40000, 2000040000).segments == kMaxSegments);
  CHECK(Of(1, 1, 2000000000, 1, 2000000000).max_kv == 2000027648);
}

TEST_CASE("cudnn buckets: no smaller, growing, few", "[cudnn]") {
  std::set<int64_t> rows;
  Buckets last;
  for (int32_t n = 1; n <= 140000; n += n < 1200 ? 1 : 997) {
    const Buckets b = Of(std::min(n, kMaxSegments), n, n, n, n);
    INFO(n);
    REQUIRE((b.segments >= std::min(n, kMaxSegments) && b.max_q >= n &&
             b.total_q >= n));
    REQUIRE((b.segments >= last.segments && b.max_q >= last.max_q &&
             b.total_q >= last.total_q));
    // No bucket is more than twice what it holds, but for the tile.
    REQUIRE((b.total_q == 128 || b.total_q < 2 * int64_t{n}));
    REQUIRE(b.max_q <= b.total_q);
    rows.insert(b.total_q);
    last = b;
  }
  CHECK(rows.size() == 13);  // 2^7 .. 2^15, then 64, 96, 128 and 160 Ki
}

TEST_CASE("cudnn graph keys: every field is in the text", "[cudnn]") {
  std::vector<std::function<void(GraphKey*)>> changes = {
      [](GraphKey* k) { k->dtype = DType::kFloat16; },
      [](GraphKey* k) { k->mask = Mask::kFull; },
      [](GraphKey* k) { k->deterministic = true; },
      [](GraphKey* k) { k->q_heads = 32; },
      [](GraphKey* k) { k->kv_heads = 2; },
      [](GraphKey* k) { k->head_dim = 64; },
      [](GraphKey* k) { k->scale += 1e-17; },
      [](GraphKey* k) { ++k->buckets.segments; },
      [](GraphKey* k) { ++k->buckets.max_q; },
      [](GraphKey* k) { ++k->buckets.max_kv; },
      [](GraphKey* k) { ++k->buckets.total_q; },
      [](GraphKey* k) { ++k->buckets.total_kv; },
      [](GraphKey* k) { k->pass = Pass::kForward; }};
  for (size_t role = 0; role < kRoles; ++role) {
    changes.push_back([role](GraphKey* k) { ++k->strides[role].row; });
    changes.push_back([role](GraphKey* k) { ++k->strides[role].head; });
  }
  std::set<std::string> texts = {ToText(SomeKey())};
  std::set<GraphKey> keys = {SomeKey()};
  for (const auto& change : changes) {
    GraphKey key = SomeKey();
    change(&key);
    CHECK(texts.insert(ToText(key)).second);
    CHECK(keys.insert(key).second);
  }
  CHECK(ToText(SomeKey()).find('\n') == std::string::npos);
}

TEST_CASE("cudnn offset lists: tensors that lie alike share one", "[cudnn]") {
  GraphKey key = SomeKey();
  OffsetLists lists = OffsetListsOf(key);
  REQUIRE(lists.count == 3);  // queries, keys, LSE
  for (const Role role : {Role::kO, Role::kDO, Role::kDQ}) {
    CHECK(lists.of_role[Index(role)] == lists.of_role[Index(Role::kQ)]);
  }
  for (const Role role : {Role::kV, Role::kDK, Role::kDV}) {
    CHECK(lists.of_role[Index(role)] == lists.of_role[Index(Role::kK)]);
  }
  // The same stride, but other rows.
  key.strides[Index(Role::kV)] = key.of(Role::kQ);
  lists = OffsetListsOf(key);
  CHECK(lists.count == 4);
  CHECK(lists.lists[lists.of_role[Index(Role::kV)]] ==
        OffsetList{true, 28 * 128});
  key.pass = Pass::kForward;
  CHECK(OffsetListsOf(key).of_role[Index(Role::kDQ)] == -1);
}

TEST_CASE("cudnn segment arrays: lengths, offsets, fillers", "[cudnn]") {
  GraphKey key = SomeKey();
  // 2^31 and more elements: 300,000 rows of 64 heads of 128.
  key.strides[Index(Role::kQ)] = {int64_t{64} * 128, 128};
  const std::vector<int32_t> cu_q = {0, 5, 300000, 300001};
  const std::vector<int32_t> cu_kv = {0, 9, 300100, 300102};
  Segments segments;
  segments.bounds.count = 3;
  segments.device_cu_q = cu_q.data();
  segments.device_cu_kv = cu_kv.data();
  const int64_t bytes = SegmentArrayBytes(key);
  CHECK(bytes % 256 == 0);
  std::vector<char> memory(static_cast<size_t>(bytes) + 1, '\x7F');
  const SegmentArrays arrays = PlaceSegmentArrays(key, segments, memory.data());
  REQUIRE(arrays.segments == 4);
  REQUIRE(LaunchSegmentArrays(arrays, {}).ToString() == "OK");
  CHECK(memory.back() == '\x7F');
  CHECK(std::vector<int32_t>(arrays.q_lengths, arrays.q_lengths + 4) ==
        std::vector<int32_t>{5, 299995, 1, 0});
  CHECK(std::vector<int32_t>(arrays.kv_lengths, arrays.kv_lengths + 4) ==
        std::vector<int32_t>{9, 300091, 2, 0});
  const auto offsets = [&](Role role) {
    const int64_t* list = arrays.offsets[arrays.lists.of_role[Index(role)]];
    return std::vector<int64_t>(list, list + 5);
  };
  CHECK(offsets(Role::kQ) ==
        std::vector<int64_t>{0, 40960, 2457600000, 2457608192, 2457608192});
  CHECK(offsets(Role::kDK) ==
        std::vector<int64_t>{0, 4608, 153651200, 153652224, 153652224});
  CHECK(offsets(Role::kLse) ==
        std::vector<int64_t>{0, 140, 8400000, 8400028, 8400028});
}

}  // namespace skrull::exec::cudnn::testing
