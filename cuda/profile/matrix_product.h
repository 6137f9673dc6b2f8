// The float32 matrix product of the example trainer and of the CPU's Gemm: the
// same loops, so that what is timed is what that trainer runs.
#ifndef SKRULL_CUDA_PROFILE_MATRIX_PRODUCT_H_
#define SKRULL_CUDA_PROFILE_MATRIX_PRODUCT_H_

#include <cstdint>

namespace skrull::profile {

// y[m, n] += x w, where x[i, p] is x[i * x_row + p * x_col], and w[k, n] and y
// are row-major without gaps. Runs on the calling thread.
void AddProduct(const float* x, int64_t x_row, int64_t x_col, const float* w,
                int64_t m, int64_t k, int64_t n, float* y);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_MATRIX_PRODUCT_H_
