#include "skrull/cuda/chunk_store.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "skrull/cuda/engine_core.h"

namespace skrull::exec {

RowPlaces PlaceRows(std::span<const RowsInUse> uses) {
  RowPlaces places{.first_rows = std::vector<int64_t>(uses.size()), .rows = 0};
  std::vector<size_t> order(uses.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {},
                           [&](size_t i) { return uses[i].first_operation; });
  std::vector<size_t> in_use;  // by first row; they do not overlap
  for (const size_t i : order) {
    std::erase_if(in_use, [&](size_t j) {
      return uses[j].last_operation < uses[i].first_operation;
    });
    int64_t row = 0;
    auto next = in_use.begin();
    for (; next != in_use.end(); ++next) {
      const int64_t taken = places.first_rows[*next];
      if (taken - row >= uses[i].rows) break;
      row = taken + uses[*next].rows;
    }
    places.first_rows[i] = row;
    in_use.insert(next, i);
    places.rows = std::max(places.rows, row + uses[i].rows);
  }
  return places;
}

namespace internal {

Status ChunkStore::Reserve(int64_t rows, int64_t gradient_rows,
                           const std::function<Status()>& quiesce) {
  rows_ = rows;
  gradient_rows_ = gradient_rows;
  StoreLayer layer;
  const int64_t bytes = layer_count_ * Take(nullptr, &layer);
  if (buffer_.bytes() >= bytes) return {};
  SKRULL_EXEC_RETURN_IF_ERROR(quiesce());
  buffer_ = Buffer();
  Result<Buffer> memory = device_->Allocate(bytes);
  SKRULL_EXEC_RETURN_IF_ERROR(memory.status());
  buffer_ = *std::move(memory);
  return {};
}

StoreLayer ChunkStore::layer(int32_t layer) const {
  StoreLayer tensors;
  const int64_t bytes = Take(nullptr, &tensors);
  (void)Take(static_cast<char*>(buffer_.data()) + layer * bytes, &tensors);
  return tensors;
}

int64_t ChunkStore::Take(void* base, StoreLayer* layer) const {
  Arena arena(base);
  const DType sums = AccumulatorOf(problem_.dtype);
  const auto take = [&](DType dtype, int64_t rows) {
    return arena.Take(dtype, rows, problem_.kv_heads, problem_.head_dim);
  };
  layer->k = take(problem_.dtype, rows_);
  layer->v = take(problem_.dtype, rows_);
  layer->dk = take(sums, gradient_rows_);
  layer->dv = take(sums, gradient_rows_);
  return arena.used();
}

}  // namespace internal
}  // namespace skrull::exec
