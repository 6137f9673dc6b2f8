// The state store of chunked execution: keys and values of the sequences whose
// chunks are under way, and the gradients that later chunks leave for earlier
// ones.
//
// Memory of a rank, for each of its layers and each token of a stored sequence
// (of which every rank of the CP group keeps all): K and V in the problem's
// type, and for split sequences dK and dV in its accumulator's. A planner's
// gather_bytes_per_token is their sum over the layers:
//   layers * 2 * kv_heads * head_dim * (SizeOf(dtype) + SizeOf(accumulator)).
// Rows are reused once they are free (PlaceRows), so that a step takes what its
// longest sequence takes when the sequences run one after another.
#ifndef SKRULL_CUDA_CHUNK_STORE_H_
#define SKRULL_CUDA_CHUNK_STORE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"
#include "skrull/cuda/tensor.h"

namespace skrull::exec {

// Rows that are needed from one operation up to another, both included.
// rows >= 0, first <= last.
struct RowsInUse {
  int64_t rows = 0;
  int64_t first_operation = 0;
  int64_t last_operation = 0;
};

struct RowPlaces {
  std::vector<int64_t> first_rows;  // of each
  int64_t rows = 0;                 // of all

  friend bool operator==(const RowPlaces&, const RowPlaces&) = default;
};

// Places each where nothing else is in use at the same time: the lowest such
// rows, in the order of first_operation, then of the list. If none overlap in
// time, `rows` is the largest's. Pure. O(n log n + n * those in use at a time).
RowPlaces PlaceRows(std::span<const RowsInUse> uses);

namespace internal {

// One layer's rows. [rows, kv_heads, head_dim] each, dense.
struct StoreLayer {
  Tensor k, v;    // in the problem's type
  Tensor dk, dv;  // in its accumulator's
};

// Not thread-safe. What runs asynchronously uses the memory: nothing may be in
// flight when it is destroyed.
class ChunkStore {
 public:
  // `device` outlives it. REQUIRES: layer_count >= 1.
  ChunkStore(Device* device, const AttentionProblem& problem,
             int32_t layer_count)
      : device_(device), problem_(problem), layer_count_(layer_count) {}

  // From now on layers have these rows; their contents are lost. Calls
  // `quiesce`, which waits for the work in flight, before it frees memory. The
  // bytes are those that are needed, rounded to 256 a tensor; they never
  // shrink. Errors: those of device and quiesce.
  Status Reserve(int64_t rows, int64_t gradient_rows,
                 const std::function<Status()>& quiesce);

  // REQUIRES: Reserve was OK; 0 <= layer < layer_count.
  StoreLayer layer(int32_t layer) const;

  int64_t bytes() const { return buffer_.bytes(); }

 private:
  // Bytes of a layer, and its tensors at `base`, if that is not null.
  int64_t Take(void* base, StoreLayer* layer) const;

  Device* const device_;
  const AttentionProblem problem_;
  const int32_t layer_count_;
  int64_t rows_ = 0;
  int64_t gradient_rows_ = 0;
  Buffer buffer_;
};

}  // namespace internal
}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CHUNK_STORE_H_
