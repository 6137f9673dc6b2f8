// Dense float32 math of the example trainer: row-major matrices without gaps.
// Small and plain; it is the cost of the layers around attention, not the point
// of the example.
#ifndef SKRULL_CUDA_EXAMPLES_CPU_TRAINER_MATRIX_H_
#define SKRULL_CUDA_EXAMPLES_CPU_TRAINER_MATRIX_H_

#include <cstdint>
#include <vector>

namespace skrull::examples {

using Floats = std::vector<float>;

// y[m, n] := x[m, k] w[k, n].
void Linear(const float* x, const float* w, int64_t m, int64_t k, int64_t n,
            float* y);

// Of y = x w: dx += dy w^T, dw += x^T dy.
void LinearBackward(const float* x, const float* w, const float* dy, int64_t m,
                    int64_t k, int64_t n, float* dx, float* dw);

// y[i, :] := x[i, :] / sqrt(mean of squares + 1e-5); `scale` keeps the factor
// of each of the m rows.
void RmsNorm(const float* x, int64_t m, int64_t n, float* y, float* scale);
// dx += the gradient.
void RmsNormBackward(const float* y, const float* scale, const float* dy,
                     int64_t m, int64_t n, float* dx);

// y := silu(gate) * up, element by element.
void GatedSilu(const float* gate, const float* up, int64_t count, float* y);
// Overwrites d_gate and d_up.
void GatedSiluBackward(const float* gate, const float* up, const float* dy,
                       int64_t count, float* d_gate, float* d_up);

// Sum over rows of -log softmax(logits)[label], rows of label -1 left out;
// overwrites the logits with its gradient times `scale`.
double CrossEntropy(const int32_t* labels, int64_t m, int64_t n, double scale,
                    float* logits);

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_CPU_TRAINER_MATRIX_H_
