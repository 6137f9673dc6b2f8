// The functions of mma.cuh in PTX, for sm_80 and newer. Included by it alone.
#ifndef SKRULL_CUDA_KERNELS_MMA_PTX_CUH_
#define SKRULL_CUDA_KERNELS_MMA_PTX_CUH_

#include <cstdint>

#include "skrull/cuda/kernels/mma.cuh"

namespace skrull::exec::kernels {

template <>
__device__ __forceinline__ uint32_t PackPair<Bf16>(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

template <>
__device__ __forceinline__ uint32_t PackPair<Fp16>(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

template <>
__device__ __forceinline__ float2 UnpackPair<Bf16>(uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16),
                     __uint_as_float(pair & 0xFFFF0000U));
}

template <>
__device__ __forceinline__ float2 UnpackPair<Fp16>(uint32_t pair) {
  float2 values;
  asm("{\n"
      ".reg .f16 first, second;\n"
      "mov.b32 {first, second}, %2;\n"
      "cvt.f32.f16 %0, first;\n"
      "cvt.f32.f16 %1, second;\n"
      "}\n"
      : "=f"(values.x), "=f"(values.y)
      : "r"(pair));
  return values;
}

template <>
__device__ __forceinline__ void Multiply<Bf16>(float (&c)[4],
                                               const uint32_t (&a)[4],
                                               uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void Multiply<Fp16>(float (&c)[4],
                                               const uint32_t (&a)[4],
                                               uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// An address for instructions that take one of shared memory.
__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// "memory": a load must stay behind the barrier before it.
__device__ __forceinline__ void LoadMatrices(uint32_t (&r)[4],
                                             const void* row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(SharedAddress(row))
      : "memory");
}

__device__ __forceinline__ void LoadMatricesTransposed(uint32_t (&r)[4],
                                                       const void* row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, "
      "[%4];\n"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(SharedAddress(row))
      : "memory");
}

// .cg: past the L1 cache, which these copies would only fill. The last operand
// is how many bytes are read; the others become zeros.
__device__ __forceinline__ void CopyAsync16(void* shared, const void* global,
                                            bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
               :
               : "r"(SharedAddress(shared)), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void CopyAsync4(void* shared, const void* global,
                                           bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n"
               :
               : "r"(SharedAddress(shared)), "l"(global), "r"(valid ? 4 : 0)
               : "memory");
}

__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" : : "n"(kPending) : "memory");
}

__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace skrull::exec::kernels

#endif  // SKRULL_CUDA_KERNELS_MMA_PTX_CUH_
