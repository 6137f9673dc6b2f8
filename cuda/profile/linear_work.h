// A layer's matrix products, and the output layer's: what stands for the linear
// layers of a model. Element-wise work (norms, activations, rotations) is left
// out, as the planner's FLOPs leave it out.
#ifndef SKRULL_CUDA_PROFILE_LINEAR_WORK_H_
#define SKRULL_CUDA_PROFILE_LINEAR_WORK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "skrull/cuda/device.h"
#include "skrull/cuda/profile/cost.h"
#include "skrull/cuda/profile/gemm.h"
#include "skrull/cuda/status.h"

namespace skrull::profile {

// For up to a number of rows. Used by one thread at a time.
class LinearWork {
 public:
  // Rows that the output layer takes at a time: logits of a large vocabulary
  // are longer than all of a layer, and trainers cut them.
  static constexpr int64_t kHeadRows = 4096;

  // `device` and `gemm` outlive it. Errors: INVALID_ARGUMENT; those of both.
  static exec::Result<std::unique_ptr<LinearWork>> Create(
      exec::Device* device, Gemm* gemm, const ModelShape& model,
      exec::DType dtype, int64_t max_rows);

  // Products of one layer: q, k and v; o; gate and up; down. Asynchronous.
  // REQUIRES: 1 <= rows <= max_rows.
  exec::Status LayerForward(int64_t rows, exec::Stream stream);
  // Gradients of inputs and of weights.
  exec::Status LayerBackward(int64_t rows, exec::Stream stream);
  exec::Status HeadForward(int64_t rows, exec::Stream stream);
  exec::Status HeadBackward(int64_t rows, exec::Stream stream);

 private:
  // y[rows, out] = x[rows, in] w[in, out].
  struct Layer {
    int64_t in = 0;
    int64_t out = 0;
  };

  LinearWork(exec::Device* device, Gemm* gemm, const ModelShape& model,
             exec::DType dtype, int64_t max_rows);

  exec::Status Allocate();
  // result_ := a b.
  exec::Status Multiply(const Product& product, const exec::Buffer& a,
                        const exec::Buffer& b, exec::Stream stream);
  exec::Status Forward(const Layer& layer, int64_t rows, exec::Stream stream);
  exec::Status Backward(const Layer& layer, int64_t rows, exec::Stream stream);

  exec::Device* const device_;
  Gemm* const gemm_;
  const exec::DType dtype_;
  const int64_t max_rows_;
  const std::vector<Layer> layers_;
  const Layer head_;
  // Inputs, weights and gradients of outputs of the largest layer, only read,
  // so that values stay what they are; and what every product is written to.
  exec::Buffer x_, w_, dy_, result_;
  // Replaced by a larger one as products ask for it, which waits for the stream
  // that may use the old one.
  exec::Buffer workspace_;
};

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_LINEAR_WORK_H_
