// What the attention kernels are given. Shapes and the meaning of each tensor
// are those of attention_backend.h.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_KERNEL_PARAMS_H_
#define SKRULL_CUDA_ATTENTION_CUDA_KERNEL_PARAMS_H_

#include <cstdint>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/tensor.h"

namespace skrull::exec::flash {

// Element (r, h, i) is at data + r * row_stride + h * head_stride + i.
template <class T>
struct StridedRows {
  T* data = nullptr;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};
// 16-bit values; rows are aligned to 16 bytes.
using HalfRows = StridedRows<uint16_t>;
using FloatRows = StridedRows<float>;

inline HalfRows HalfRowsOf(const Tensor& tensor) {
  return {static_cast<uint16_t*>(tensor.data), tensor.row_stride,
          tensor.head_stride};
}

inline FloatRows FloatRowsOf(const Tensor& tensor) {
  return {static_cast<float*>(tensor.data), tensor.row_stride,
          tensor.head_stride};
}

// Of every attention kernel. cu_q and cu_kv are on the device.
struct SharedParams {
  const int32_t* cu_q = nullptr;
  const int32_t* cu_kv = nullptr;
  int32_t q_heads = 0;
  int32_t group = 1;  // query heads of a key head
  bool causal = true;
  float scale = 0;       // of scores, above 0
  float scale_log2 = 0;  // the same, for powers of 2: scale * log2(e)
};

struct ForwardParams {
  SharedParams shared;
  HalfRows q, k, v;  // only read
  HalfRows o;
  FloatRows lse;
};

// What the backward kernels need of each query row, [q_heads, total_q] without
// gaps: log2 of the sum of the exponentials, +inf where there were no keys, and
// delta = sum over the row of dO * O.
struct RowStatistics {
  float* log2_sum = nullptr;
  float* delta = nullptr;
  int64_t total_q = 0;
};

struct RowStatisticsParams {
  HalfRows o, d_o;  // only read
  FloatRows lse;    // only read
  int32_t q_heads = 0;
  RowStatistics statistics;
};

struct BackwardParams {
  SharedParams shared;
  HalfRows q, k, v, d_o;     // only read
  RowStatistics statistics;  // only read
  HalfRows dq;               // of QueryGradientKernel
  HalfRows dk, dv;           // of KeyGradientKernel
};

// `segments` gives the arrays on the device.
inline SharedParams SharedParamsOf(const AttentionProblem& problem,
                                   const Segments& segments) {
  constexpr double kLog2OfE = 1.4426950408889634;
  return {.cu_q = segments.device_cu_q,
          .cu_kv = segments.device_cu_kv,
          .q_heads = problem.q_heads,
          .group = problem.q_heads / problem.kv_heads,
          .causal = segments.bounds.mask == Mask::kCausalBottomRight,
          .scale = static_cast<float>(problem.scale),
          .scale_log2 = static_cast<float>(problem.scale * kLog2OfE)};
}

inline BackwardParams BackwardParamsOf(const AttentionBackward& call,
                                       const RowStatistics& statistics) {
  return {.shared = SharedParamsOf(call.problem, call.segments),
          .q = HalfRowsOf(call.q),
          .k = HalfRowsOf(call.k),
          .v = HalfRowsOf(call.v),
          .d_o = HalfRowsOf(call.d_o),
          .statistics = statistics,
          .dq = HalfRowsOf(call.dq),
          .dk = HalfRowsOf(call.dk),
          .dv = HalfRowsOf(call.dv)};
}

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_KERNEL_PARAMS_H_
