// Tensors of tests: memory with NaN wherever nobody may look or write.
#ifndef SKRULL_TESTS_CUDA_HOST_TENSOR_H_
#define SKRULL_TESTS_CUDA_HOST_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "skrull/cuda/cpu/host_types.h"
#include "skrull/cuda/tensor.h"
#include "skrull/tests/cuda/dense_attention.h"

namespace skrull::exec::testing {

// Owns rows with gaps between heads and rows and with spare rows behind, all
// NaN at first.
class HostTensor {
 public:
  HostTensor() = default;
  // `gap`: elements between heads and after each row. `head_major`: [heads,
  // rows, dim].
  HostTensor(DType dtype, int64_t rows, int32_t heads, int32_t dim,
             int32_t gap = 0, bool head_major = false) {
    view_ = DenseTensor(nullptr, dtype, rows, heads, dim);
    if (head_major) {
      view_.row_stride = dim + gap;
      view_.head_stride = (rows + 1) * view_.row_stride;
    } else {
      view_.head_stride = dim + gap;
      view_.row_stride = heads * view_.head_stride + gap;
    }
    const int64_t elements = head_major ? heads * view_.head_stride + dim + gap
                                        : (rows + 2) * view_.row_stride;
    bytes_.assign(static_cast<size_t>(elements * SizeOf(dtype)), '\xFF');
    view_.data = bytes_.data();
  }
  HostTensor(HostTensor&& other) noexcept { *this = std::move(other); }
  HostTensor& operator=(HostTensor&& other) noexcept {
    bytes_ = std::move(other.bytes_);
    view_ = other.view_;
    view_.data = bytes_.data();
    return *this;
  }

  const Tensor& view() const { return view_; }

  double Get(int64_t row, int32_t head, int32_t c) const {
    double value = 0;
    WithHostType(view_.dtype, [&]<class T>(T) {
      value = ConvertHost<double>(
          static_cast<const T*>(view_.data)[Offset(row, head, c)]);
    });
    return value;
  }
  void Set(int64_t row, int32_t head, int32_t c, double value) {
    WithHostType(view_.dtype, [&]<class T>(T) {
      static_cast<T*>(view_.data)[Offset(row, head, c)] = ConvertHost<T>(value);
    });
  }

  // True if all but the elements of the view is as it was made.
  bool GapsAreUntouched() const {
    std::vector<char> rest = bytes_;
    const auto size = static_cast<size_t>(SizeOf(view_.dtype));
    for (int64_t r = 0; r < view_.rows; ++r) {
      for (int32_t h = 0; h < view_.heads; ++h) {
        std::memset(rest.data() + static_cast<size_t>(Offset(r, h, 0)) * size,
                    0xFF, size * static_cast<size_t>(view_.dim));
      }
    }
    for (const char byte : rest) {
      if (byte != '\xFF') return false;
    }
    return true;
  }

  const std::vector<char>& bytes() const { return bytes_; }

 private:
  int64_t Offset(int64_t row, int32_t head, int32_t c) const {
    return row * view_.row_stride + head * view_.head_stride + c;
  }

  std::vector<char> bytes_;
  Tensor view_;
};

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_HOST_TENSOR_H_
