// Strided views of rows in some device's memory.
#ifndef SKRULL_CUDA_TENSOR_H_
#define SKRULL_CUDA_TENSOR_H_

#include <cstdint>
#include <string_view>

namespace skrull::exec {

// The numbers are part of the C interface.
enum class DType : int32_t {
  kFloat16 = 0,
  kBFloat16 = 1,
  kFloat32 = 2,
  kFloat64 = 3,
};

constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kFloat32:
      return 4;
    case DType::kFloat64:
      return 8;
  }
  return 0;  // no such type
}

// What sums of `dtype` are kept in, and the log-sum-exp of attention over it:
// float64 for float64, float32 for all others.
constexpr DType AccumulatorOf(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

std::string_view DTypeName(DType dtype);  // "float16", "bfloat16", ...

// rows x heads x dim elements; element (r, h, i) is at
// data + r * row_stride + h * head_stride + i, counted in elements. Owns
// nothing. `data` may be null if rows is 0. What a function only reads is a
// Tensor too; its comment says so.
//
// A log-sum-exp is a Tensor with dim 1: natural logarithm, [rows, heads] or
// [heads, rows] as the strides say.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t rows = 0;
  int32_t heads = 0;
  int32_t dim = 0;
  int64_t row_stride = 0;
  int64_t head_stride = 0;

  // The `count` rows from `first` on.
  Tensor Rows(int64_t first, int64_t count) const {
    Tensor part = *this;
    if (count > 0 && data != nullptr) {
      part.data = static_cast<char*>(data) + first * row_stride * SizeOf(dtype);
    }
    part.rows = count;
    return part;
  }
};

// Row after row without gaps: [rows, heads, dim].
constexpr Tensor DenseTensor(void* data, DType dtype, int64_t rows,
                             int32_t heads, int32_t dim) {
  return {.data = data,
          .dtype = dtype,
          .rows = rows,
          .heads = heads,
          .dim = dim,
          .row_stride = int64_t{heads} * dim,
          .head_stride = dim};
}

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_TENSOR_H_
