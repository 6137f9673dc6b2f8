// The inner loops of blocked attention: small dense products and conversions.
// Every element of a product is summed in the order of the inner index, so the
// bits do not depend on how the compiler vectorises.
#ifndef SKRULL_CUDA_CPU_TILE_MATH_H_
#define SKRULL_CUDA_CPU_TILE_MATH_H_

#include <cstdint>

#include "skrull/cuda/cpu/host_types.h"
#include "skrull/cuda/tensor.h"

namespace skrull::exec::tile {

// Elements between rows of every tile. Tiles are row-major.
// c[m, n] (+)= a[m, inner] b[inner, n]: adds if `add`, else overwrites.
template <class T>
void MultiplyInto(T* c, int64_t c_step, const T* a, int64_t a_step, const T* b,
                  int64_t b_step, int64_t m, int64_t n, int64_t inner,
                  bool add) {
  constexpr int64_t kRows = 4;
  constexpr int64_t kColumns = 32 / sizeof(T);
  int64_t i = 0;
  for (; i + kRows <= m; i += kRows) {
    int64_t j = 0;
    for (; j + kColumns <= n; j += kColumns) {
      T sum[kRows][kColumns] = {};
      if (add) {
        for (int64_t r = 0; r < kRows; ++r) {
          for (int64_t x = 0; x < kColumns; ++x) {
            sum[r][x] = c[(i + r) * c_step + j + x];
          }
        }
      }
      for (int64_t l = 0; l < inner; ++l) {
        const T* row = b + l * b_step + j;
        for (int64_t r = 0; r < kRows; ++r) {
          const T factor = a[(i + r) * a_step + l];
          for (int64_t x = 0; x < kColumns; ++x) {
            sum[r][x] += factor * row[x];
          }
        }
      }
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t x = 0; x < kColumns; ++x) {
          c[(i + r) * c_step + j + x] = sum[r][x];
        }
      }
    }
    for (; j < n; ++j) {
      for (int64_t r = 0; r < kRows; ++r) {
        T sum = add ? c[(i + r) * c_step + j] : T{0};
        for (int64_t l = 0; l < inner; ++l) {
          sum += a[(i + r) * a_step + l] * b[l * b_step + j];
        }
        c[(i + r) * c_step + j] = sum;
      }
    }
  }
  for (; i < m; ++i) {
    T* row = c + i * c_step;
    if (!add) {
      for (int64_t j = 0; j < n; ++j) row[j] = T{0};
    }
    for (int64_t l = 0; l < inner; ++l) {
      const T factor = a[i * a_step + l];
      for (int64_t j = 0; j < n; ++j) row[j] += factor * b[l * b_step + j];
    }
  }
}

// out[rows, dim] := rows [first, first + rows) of one head.
template <class T, class Storage>
void Load(T* out, int64_t step, const Tensor& tensor, int64_t first,
          int64_t rows, int32_t head) {
  const auto* base = static_cast<const Storage*>(tensor.data) +
                     first * tensor.row_stride + head * tensor.head_stride;
  for (int64_t i = 0; i < rows; ++i) {
    const Storage* row = base + i * tensor.row_stride;
    for (int32_t c = 0; c < tensor.dim; ++c) {
      out[i * step + c] = ConvertHost<T>(row[c]);
    }
  }
}

// out[dim, rows] := the same, transposed.
template <class T, class Storage>
void LoadTransposed(T* out, int64_t step, const Tensor& tensor, int64_t first,
                    int64_t rows, int32_t head) {
  const auto* base = static_cast<const Storage*>(tensor.data) +
                     first * tensor.row_stride + head * tensor.head_stride;
  for (int64_t i = 0; i < rows; ++i) {
    const Storage* row = base + i * tensor.row_stride;
    for (int32_t c = 0; c < tensor.dim; ++c) {
      out[c * step + i] = ConvertHost<T>(row[c]);
    }
  }
}

// Rows [first, first + rows) of one head := factor * in[rows, dim], where
// factor(i) is that of row i.
template <class T, class Storage, class Factor>
void Store(const Tensor& tensor, int64_t first, int64_t rows, int32_t head,
           const T* in, int64_t step, const Factor& factor) {
  auto* base = static_cast<Storage*>(tensor.data) + first * tensor.row_stride +
               head * tensor.head_stride;
  for (int64_t i = 0; i < rows; ++i) {
    Storage* row = base + i * tensor.row_stride;
    const T by = factor(i);
    for (int32_t c = 0; c < tensor.dim; ++c) {
      row[c] = ConvertHost<Storage>(in[i * step + c] * by);
    }
  }
}

}  // namespace skrull::exec::tile

#endif  // SKRULL_CUDA_CPU_TILE_MATH_H_
