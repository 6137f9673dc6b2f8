#include "skrull/tests/cuda/dense_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace skrull::exec::testing {

DenseResult DenseAttention(const Dense& q, const Dense& k, const Dense& v,
                           const Dense& d_o, double scale, bool full,
                           int64_t first_query) {
  DenseResult r{.o = Dense(q.rows, q.heads, q.dim),
                .lse = Dense(q.rows, q.heads, 1),
                .dq = Dense(q.rows, q.heads, q.dim),
                .dk = Dense(k.rows, k.heads, k.dim),
                .dv = Dense(k.rows, k.heads, k.dim)};
  std::vector<double> p(static_cast<size_t>(k.rows));
  for (int64_t i = first_query; i < q.rows; ++i) {
    const auto keys =
        static_cast<size_t>(full ? k.rows : i + 1 + k.rows - q.rows);
    for (int32_t h = 0; h < q.heads; ++h) {
      const int32_t g = h / (q.heads / k.heads);
      double most = -std::numeric_limits<double>::infinity();
      for (size_t j = 0; j < keys; ++j) {
        p[j] = 0;
        for (int32_t c = 0; c < q.dim; ++c) {
          p[j] += q.at(i, h, c) * k.at(static_cast<int64_t>(j), g, c);
        }
        p[j] *= scale;
        most = std::max(most, p[j]);
      }
      double sum = 0;
      for (size_t j = 0; j < keys; ++j) sum += std::exp(p[j] - most);
      const double lse = most + std::log(sum);
      r.lse.at(i, h, 0) = lse;
      for (size_t j = 0; j < keys; ++j) {
        p[j] = std::exp(p[j] - lse);
        for (int32_t c = 0; c < q.dim; ++c) {
          r.o.at(i, h, c) += p[j] * v.at(static_cast<int64_t>(j), g, c);
        }
      }
      double delta = 0;
      for (int32_t c = 0; c < q.dim; ++c) {
        delta += d_o.at(i, h, c) * r.o.at(i, h, c);
      }
      for (size_t x = 0; x < keys; ++x) {
        const auto j = static_cast<int64_t>(x);
        double dp = 0;
        for (int32_t c = 0; c < q.dim; ++c) {
          dp += d_o.at(i, h, c) * v.at(j, g, c);
        }
        const double ds = p[x] * (dp - delta) * scale;
        for (int32_t c = 0; c < q.dim; ++c) {
          r.dq.at(i, h, c) += ds * k.at(j, g, c);
          r.dk.at(j, g, c) += ds * q.at(i, h, c);
          r.dv.at(j, g, c) += p[x] * d_o.at(i, h, c);
        }
      }
    }
  }
  return r;
}

}  // namespace skrull::exec::testing
