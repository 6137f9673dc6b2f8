#include "skrull/cuda/examples/cpu_trainer/matrix.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "skrull/cuda/profile/matrix_product.h"

namespace skrull::examples {

using profile::AddProduct;

void Linear(const float* x, const float* w, int64_t m, int64_t k, int64_t n,
            float* y) {
  std::fill_n(y, m * n, 0.0F);
  AddProduct(x, k, 1, w, m, k, n, y);
}

void LinearBackward(const float* x, const float* w, const float* dy, int64_t m,
                    int64_t k, int64_t n, float* dx, float* dw) {
  if (m == 0) return;
  Floats transposed(static_cast<size_t>(k * n));
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t j = 0; j < n; ++j) {
      transposed[static_cast<size_t>(j * k + p)] = w[p * n + j];
    }
  }
  AddProduct(dy, n, 1, transposed.data(), m, n, k, dx);
  AddProduct(x, 1, k, dy, k, m, n, dw);
}

void RmsNorm(const float* x, int64_t m, int64_t n, float* y, float* scale) {
  for (int64_t i = 0; i < m; ++i) {
    float squares = 0;
    for (int64_t j = 0; j < n; ++j) squares += x[i * n + j] * x[i * n + j];
    scale[i] = 1 / std::sqrt(squares / static_cast<float>(n) + 1e-5F);
    for (int64_t j = 0; j < n; ++j) y[i * n + j] = x[i * n + j] * scale[i];
  }
}

void RmsNormBackward(const float* y, const float* scale, const float* dy,
                     int64_t m, int64_t n, float* dx) {
  for (int64_t i = 0; i < m; ++i) {
    float mean = 0;
    for (int64_t j = 0; j < n; ++j) mean += y[i * n + j] * dy[i * n + j];
    mean /= static_cast<float>(n);
    for (int64_t j = 0; j < n; ++j) {
      dx[i * n + j] += scale[i] * (dy[i * n + j] - y[i * n + j] * mean);
    }
  }
}

void GatedSilu(const float* gate, const float* up, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  }
}

void GatedSiluBackward(const float* gate, const float* up, const float* dy,
                       int64_t count, float* d_gate, float* d_up) {
  for (int64_t i = 0; i < count; ++i) {
    const float sigmoid = 1 / (1 + std::exp(-gate[i]));
    d_up[i] = dy[i] * gate[i] * sigmoid;
    d_gate[i] = dy[i] * up[i] * sigmoid * (1 + gate[i] * (1 - sigmoid));
  }
}

double CrossEntropy(const int32_t* labels, int64_t m, int64_t n, double scale,
                    float* logits) {
  double loss = 0;
  for (int64_t i = 0; i < m; ++i) {
    float* const row = logits + i * n;
    if (labels[i] < 0) {
      std::fill_n(row, n, 0.0F);
      continue;
    }
    const float most = *std::max_element(row, row + n);
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += std::exp(row[j] - most);
    loss += std::log(sum) - (row[labels[i]] - most);
    for (int64_t j = 0; j < n; ++j) {
      const double p = std::exp(row[j] - most) / sum;
      row[j] = static_cast<float>(scale * (p - (j == labels[i] ? 1 : 0)));
    }
  }
  return loss;
}

}  // namespace skrull::examples
