// The oracle: dense causal attention of one sequence in float64, written as the
// definition reads. Shares no code with the executor.
#ifndef SKRULL_TESTS_CUDA_DENSE_ATTENTION_H_
#define SKRULL_TESTS_CUDA_DENSE_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace skrull::exec::testing {

// Row-major [rows, heads, dim].
struct Dense {
  int64_t rows = 0;
  int32_t heads = 0;
  int32_t dim = 0;
  std::vector<double> values;

  Dense() = default;
  Dense(int64_t r, int32_t h, int32_t d)
      : rows(r), heads(h), dim(d), values(static_cast<size_t>(r * h * d)) {}
  double& at(int64_t r, int32_t h, int32_t c) {
    return values[static_cast<size_t>((r * heads + h) * dim + c)];
  }
  double at(int64_t r, int32_t h, int32_t c) const {
    return values[static_cast<size_t>((r * heads + h) * dim + c)];
  }
};

struct DenseResult {
  Dense o, lse, dq, dk, dv;  // lse has dim 1
};

// Query i of n sees keys j <= i + m - n of m, or all if `full`. `first_query`:
// gradients flow from queries at and after it only, and the outputs of earlier
// ones stay 0, which saves time where d_o is 0 for them.
DenseResult DenseAttention(const Dense& q, const Dense& k, const Dense& v,
                           const Dense& d_o, double scale, bool full = false,
                           int64_t first_query = 0);

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_DENSE_ATTENTION_H_
