// The tensor cores and what feeds them: matrix products of a warp, loads of
// their operands from shared memory, and asynchronous copies to it. One
// interface, two bodies: PTX for sm_80 and newer, and portable C++ for kernels
// that run on the CPU (cuda/sim).
//
// Values of 16 bit travel as uint16_t, two of them as a uint32_t with the first
// in the low half. Bf16 and Fp16 say which of the types they are.
//
// Fragments. With g = lane / 4 and t = lane % 4, lane holds of
//   A [16, 16]  a[0] = A[g][2t, 2t+1],   a[1] = A[g+8][2t, 2t+1],
//               a[2] = A[g][2t+8, 2t+9], a[3] = A[g+8][2t+8, 2t+9]
//   B [16, 8]   b0 = B[2t, 2t+1][g],     b1 = B[2t+8, 2t+9][g]
//   C [16, 8]   c[0, 1] = C[g][2t, 2t+1], c[2, 3] = C[g+8][2t, 2t+1]
//
// All 32 lanes of a warp call Multiply, LoadMatrices and
// LoadMatricesTransposed together; the others are a thread's own.
#ifndef SKRULL_CUDA_KERNELS_MMA_CUH_
#define SKRULL_CUDA_KERNELS_MMA_CUH_

#include <cstdint>

#include "skrull/cuda/kernels/portable.cuh"

namespace skrull::exec::kernels {

struct Bf16 {};
struct Fp16 {};

// Two values of type T, rounded to the nearest, ties to even.
template <class T>
__device__ __forceinline__ uint32_t PackPair(float first, float second);
template <class T>
__device__ __forceinline__ float2 UnpackPair(uint32_t pair);

// C += A * B in float32; A and B are of type T.
template <class T>
__device__ __forceinline__ void Multiply(float (&c)[4], const uint32_t (&a)[4],
                                         uint32_t b0, uint32_t b1);

// Four 8x8 matrices of 16-bit values. Lane l names row l % 8 of matrix l / 8:
// 16 bytes of shared memory, aligned to 16. It gets in r[i] the values
// [l / 4][2 (l % 4), +1] of matrix i, or of its transpose.
__device__ __forceinline__ void LoadMatrices(uint32_t (&r)[4], const void* row);
__device__ __forceinline__ void LoadMatricesTransposed(uint32_t (&r)[4],
                                                       const void* row);

// Starts a copy of 16 or 4 bytes, aligned to their number, from global to
// shared memory. Without `valid` the bytes become zeros and nothing is read.
// Until the wait, the bytes are neither the old nor the new ones.
__device__ __forceinline__ void CopyAsync16(void* shared, const void* global,
                                            bool valid);
__device__ __forceinline__ void CopyAsync4(void* shared, const void* global,
                                           bool valid);
// Makes a group of this thread's copies since the last group.
__device__ __forceinline__ void CommitCopies();
// Until all but the newest kPending groups of this thread are there. Other
// threads see them after a barrier.
template <int kPending>
__device__ __forceinline__ void WaitForCopies();

// 2^x; 0 for -infinity. Within 2 units in the last place.
__device__ __forceinline__ float Exp2(float x);

}  // namespace skrull::exec::kernels

#ifdef __CUDACC__
#include "skrull/cuda/kernels/mma_ptx.cuh"
#else
#include "skrull/cuda/kernels/mma_portable.cuh"
#endif

#endif  // SKRULL_CUDA_KERNELS_MMA_CUH_
