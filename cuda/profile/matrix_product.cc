#include "skrull/cuda/profile/matrix_product.h"

namespace skrull::profile {
namespace {

// y[i .. i + kRows, :] += x w; a few rows at a time use each w[p, :] several
// times while it is in the cache.
template <int kRows>
void AddRows(const float* x, int64_t x_row, int64_t x_col, const float* w,
             int64_t k, int64_t n, float* y) {
  for (int64_t p = 0; p < k; ++p) {
    float factor[kRows];
    for (int r = 0; r < kRows; ++r) factor[r] = x[r * x_row + p * x_col];
    const float* const row = w + p * n;
    for (int64_t j = 0; j < n; ++j) {
      for (int r = 0; r < kRows; ++r) y[r * n + j] += factor[r] * row[j];
    }
  }
}

}  // namespace

void AddProduct(const float* x, int64_t x_row, int64_t x_col, const float* w,
                int64_t m, int64_t k, int64_t n, float* y) {
  constexpr int kRows = 4;
  int64_t i = 0;
  for (; i + kRows <= m; i += kRows) {
    AddRows<kRows>(x + i * x_row, x_row, x_col, w, k, n, y + i * n);
  }
  for (; i < m; ++i) {
    AddRows<1>(x + i * x_row, x_row, x_col, w, k, n, y + i * n);
  }
}

}  // namespace skrull::profile
