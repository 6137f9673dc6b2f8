#include "skrull/cuda/profile/linear_work.h"

#include <algorithm>
#include <string>
#include <utility>

#include "skrull/cuda/profile/device_data.h"

namespace skrull::profile {

using exec::Result;
using exec::Status;

LinearWork::LinearWork(exec::Device* device, Gemm* gemm,
                       const ModelShape& model, exec::DType dtype,
                       int64_t max_rows)
    : device_(device),
      gemm_(gemm),
      dtype_(dtype),
      max_rows_(max_rows),
      layers_({{model.hidden_size, model.q_size() + 2 * model.kv_size()},
               {model.q_size(), model.hidden_size},
               {model.hidden_size, 2 * model.intermediate_size},
               {model.intermediate_size, model.hidden_size}}),
      head_({model.hidden_size, model.vocab_size}) {}

Result<std::unique_ptr<LinearWork>> LinearWork::Create(exec::Device* device,
                                                       Gemm* gemm,
                                                       const ModelShape& model,
                                                       exec::DType dtype,
                                                       int64_t max_rows) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckModel(model));
  if (gemm->memory() != device->memory()) {
    return exec::InvalidArgument("gemm " + std::string(gemm->name()) +
                                 " does not work in memory of device " +
                                 std::string(device->name()));
  }
  std::unique_ptr<LinearWork> work(
      new LinearWork(device, gemm, model, dtype, max_rows));
  SKRULL_EXEC_RETURN_IF_ERROR(work->Allocate());
  return work;
}

Status LinearWork::Allocate() {
  const int64_t head_rows = std::min(max_rows_, kHeadRows);
  int64_t x = head_rows * head_.in;
  int64_t y = head_rows * head_.out;
  int64_t w = head_.in * head_.out;
  for (const Layer& layer : layers_) {
    x = std::max(x, max_rows_ * layer.in);
    y = std::max(y, max_rows_ * layer.out);
    w = std::max(w, layer.in * layer.out);
  }
  for (const auto& [buffer, elements] :
       {std::pair(&x_, x), std::pair(&w_, w), std::pair(&dy_, y),
        std::pair(&result_, std::max({x, y, w}))}) {
    Result<exec::Buffer> made = RandomBuffer(device_, dtype_, elements);
    SKRULL_EXEC_RETURN_IF_ERROR(made.status());
    *buffer = *std::move(made);
  }
  return {};
}

Status LinearWork::Multiply(const Product& product, const exec::Buffer& a,
                            const exec::Buffer& b, exec::Stream stream) {
  const Result<int64_t> bytes = gemm_->Prepare(product);
  SKRULL_EXEC_RETURN_IF_ERROR(bytes.status());
  if (workspace_.bytes() < *bytes) {
    SKRULL_EXEC_RETURN_IF_ERROR(device_->Synchronize(stream));
    Result<exec::Buffer> made = device_->Allocate(*bytes);
    SKRULL_EXEC_RETURN_IF_ERROR(made.status());
    workspace_ = *std::move(made);
  }
  return gemm_->Multiply(product, a.data(), b.data(), result_.data(),
                         {workspace_.data(), workspace_.bytes()}, stream);
}

Status LinearWork::Forward(const Layer& layer, int64_t rows,
                           exec::Stream stream) {
  return Multiply({.dtype = dtype_, .m = rows, .n = layer.out, .k = layer.in},
                  x_, w_, stream);
}

Status LinearWork::Backward(const Layer& layer, int64_t rows,
                            exec::Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(Multiply({.dtype = dtype_,
                                        .m = layer.in,
                                        .n = layer.out,
                                        .k = rows,
                                        .transpose_a = true},
                                       x_, dy_, stream));
  return Multiply({.dtype = dtype_,
                   .m = rows,
                   .n = layer.in,
                   .k = layer.out,
                   .transpose_b = true},
                  dy_, w_, stream);
}

Status LinearWork::LayerForward(int64_t rows, exec::Stream stream) {
  for (const Layer& layer : layers_) {
    SKRULL_EXEC_RETURN_IF_ERROR(Forward(layer, rows, stream));
  }
  return {};
}

Status LinearWork::LayerBackward(int64_t rows, exec::Stream stream) {
  for (size_t i = layers_.size(); i-- > 0;) {
    SKRULL_EXEC_RETURN_IF_ERROR(Backward(layers_[i], rows, stream));
  }
  return {};
}

Status LinearWork::HeadForward(int64_t rows, exec::Stream stream) {
  for (int64_t at = 0; at < rows; at += kHeadRows) {
    SKRULL_EXEC_RETURN_IF_ERROR(
        Forward(head_, std::min(kHeadRows, rows - at), stream));
  }
  return {};
}

Status LinearWork::HeadBackward(int64_t rows, exec::Stream stream) {
  for (int64_t at = 0; at < rows; at += kHeadRows) {
    SKRULL_EXEC_RETURN_IF_ERROR(
        Backward(head_, std::min(kHeadRows, rows - at), stream));
  }
  return {};
}

}  // namespace skrull::profile
