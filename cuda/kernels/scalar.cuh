// Numbers as kernels hold them: the storage types of a DType, conversions, and
// packs of them that move in one access.
#ifndef SKRULL_CUDA_KERNELS_SCALAR_CUH_
#define SKRULL_CUDA_KERNELS_SCALAR_CUH_

#include <bit>
#include <cstring>

#include "skrull/cuda/cpu/half.h"
#include "skrull/cuda/cpu/host_types.h"
#include "skrull/cuda/kernels/portable.cuh"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include "skrull/cuda/sim/thread.h"
#endif

namespace skrull::exec::internal {

// Between any two storage types, through the wider accumulator, rounded to the
// nearest, ties to even: the values of ConvertHost, by the GPU's instructions
// where there are some. NaN stays NaN, of whatever bits.
template <class To, class From>
__host__ __device__ __forceinline__ To Convert(From value) {
#ifndef __CUDA_ARCH__
  return ConvertHost<To>(value);
#else
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, Float16>) {
    return Convert<To>(__half2float(__ushort_as_half(value.bits)));
  } else if constexpr (std::is_same_v<From, BFloat16>) {
    return Convert<To>(
        __uint_as_float(static_cast<unsigned>(value.bits) << 16));
  } else if constexpr (std::is_same_v<To, Float16>) {
    To half;
    half.bits = __half_as_ushort(__float2half_rn(static_cast<float>(value)));
    return half;
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    To half;
    half.bits =
        __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(value)));
    return half;
  } else {
    return static_cast<To>(value);
  }
#endif
}

// `count` consecutive values, 2 to 16 bytes, that are aligned as a whole.
template <class T, int count>
struct alignas(sizeof(T) * count) Pack {
  T at[count];
};

// What a pack moves as.
template <int bytes>
struct WordsOf;
template <>
struct WordsOf<2> {
  using Type = unsigned short;
};
template <>
struct WordsOf<4> {
  using Type = unsigned;
};
template <>
struct WordsOf<8> {
  using Type = uint2;
};
template <>
struct WordsOf<16> {
  using Type = uint4;
};

// One access. REQUIRES: `from` is aligned to the pack's size; under cuda/sim,
// the launch fails if it is not.
template <int count, class T>
__device__ __forceinline__ Pack<T, count> LoadPack(const T* from) {
  using Words = typename WordsOf<sizeof(T) * count>::Type;
#ifdef __CUDACC__
  return std::bit_cast<Pack<T, count>>(*reinterpret_cast<const Words*>(from));
#else
  sim::RequireAligned(from, sizeof(Words));
  Words words;
  std::memcpy(&words, static_cast<const void*>(from), sizeof(words));
  return std::bit_cast<Pack<T, count>>(words);
#endif
}

// As LoadPack.
template <int count, class T>
__device__ __forceinline__ void StorePack(T* to, const Pack<T, count>& pack) {
  using Words = typename WordsOf<sizeof(T) * count>::Type;
  const Words words = std::bit_cast<Words>(pack);
#ifdef __CUDACC__
  *reinterpret_cast<Words*>(to) = words;
#else
  sim::RequireAligned(to, sizeof(words));
  std::memcpy(static_cast<void*>(to), &words, sizeof(words));
#endif
}

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_KERNELS_SCALAR_CUH_
