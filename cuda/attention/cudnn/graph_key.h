// What a cuDNN graph depends on: the key of plan caches.
//
// Building a graph takes a second, and segments differ in every micro-batch. So
// graphs are built for buckets: upper bounds that many calls share. A call
// fills what its bucket has more of with segments of no rows.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_GRAPH_KEY_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_GRAPH_KEY_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/segments.h"
#include "skrull/cuda/tensor.h"

namespace skrull::exec::cudnn {

// The tensors of a graph. A forward graph has Q, K, V, O and LSE.
enum class Role : int32_t { kQ, kK, kV, kO, kDO, kLse, kDQ, kDK, kDV };
inline constexpr int kRoles = 9;
inline constexpr std::array<Role, kRoles> kAllRoles = {
    Role::kQ,   Role::kK,  Role::kV,  Role::kO, Role::kDO,
    Role::kLse, Role::kDQ, Role::kDK, Role::kDV};

constexpr size_t Index(Role role) { return static_cast<size_t>(role); }
constexpr bool HasKeyRows(Role role) {
  return role == Role::kK || role == Role::kV || role == Role::kDK ||
         role == Role::kDV;
}
constexpr bool IsPartOf(Role role, Pass pass) {
  return pass == Pass::kBackward || (role != Role::kDO && role < Role::kDQ);
}
const char* RoleName(Role role);  // "q", "d_o" and so on

// In elements, as in Tensor.
struct Strides {
  int64_t row = 0;
  int64_t head = 0;
  friend auto operator<=>(const Strides&, const Strides&) = default;
};

struct Buckets {
  int64_t segments = 0;
  int64_t max_q = 0;
  int64_t max_kv = 0;
  int64_t total_q = 0;
  int64_t total_kv = 0;
  friend auto operator<=>(const Buckets&, const Buckets&) = default;
};

// The most segments of a call: a grid's second and third dimension.
inline constexpr int32_t kMaxSegments = 65535;

// No smaller than the bounds in any number, and growing with each of them.
//  - Segments: the next power of two. Also small ones, since each filler
//    segment costs a grid as large as the longest segment's: 31 of them would
//    launch 32 times the blocks of one long sequence.
//  - Rows: the next power of two up to 32,768, then the next multiple of that,
//    for workspace grows with them. At least 128, the rows of a kernel's tile.
//  - The longest segment: the next power of two, but no more than all rows.
// REQUIRES: 1 <= count <= kMaxSegments; 1 <= max <= total.
Buckets BucketsOf(const SegmentBounds& bounds);

struct GraphKey {
  Pass pass = Pass::kForward;
  DType dtype = DType::kBFloat16;
  Mask mask = Mask::kCausalBottomRight;
  bool deterministic = false;  // of backward graphs; forward ones always are
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  double scale = 0;
  Buckets buckets;
  std::array<Strides, kRoles> strides;  // 0 of tensors that it does not have

  const Strides& of(Role role) const { return strides[Index(role)]; }
  int32_t heads(Role role) const {
    return HasKeyRows(role) ? kv_heads : q_heads;
  }

  friend auto operator<=>(const GraphKey&, const GraphKey&) = default;
};

// One line that names every field; equal for equal keys alone.
std::string ToText(const GraphKey& key);

// Where segments begin in a tensor, in elements, is the row times the row
// stride: tensors of the same rows and stride share a list.
struct OffsetList {
  bool key_rows = false;
  int64_t row_stride = 0;
  friend bool operator==(const OffsetList&, const OffsetList&) = default;
};

struct OffsetLists {
  int32_t count = 0;
  OffsetList lists[kRoles];
  int32_t of_role[kRoles] = {};  // -1: the graph does not have the tensor
};

OffsetLists OffsetListsOf(const GraphKey& key);

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_GRAPH_KEY_H_
