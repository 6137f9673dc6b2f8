// The C++ types behind a DType on the host.
#ifndef SKRULL_CUDA_CPU_HOST_TYPES_H_
#define SKRULL_CUDA_CPU_HOST_TYPES_H_

#include <type_traits>

#include "skrull/cuda/cpu/half.h"
#include "skrull/cuda/tensor.h"

namespace skrull::exec {

// What values of storage type T are computed in.
template <class T>
using AccumulatorType =
    std::conditional_t<std::is_same_v<T, double>, double, float>;

// Calls visit(T{}) with the storage type of `dtype`. REQUIRES: one of DType's
// values.
template <class Visit>
void WithHostType(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kFloat16:
      return visit(Float16{});
    case DType::kBFloat16:
      return visit(BFloat16{});
    case DType::kFloat32:
      return visit(float{});
    case DType::kFloat64:
      return visit(double{});
  }
}

// Between any two storage types, through the wider accumulator.
template <class To, class From>
To ConvertHost(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else {
    return static_cast<To>(static_cast<AccumulatorType<To>>(
        static_cast<AccumulatorType<From>>(value)));
  }
}

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CPU_HOST_TYPES_H_
