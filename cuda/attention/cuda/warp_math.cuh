// Matrix products of a warp with operands in shared memory, and what is done
// with their results in registers.
//
// Accumulators x[kM][kN][4] are a [16 kM, 8 kN] matrix in fragments C of
// mma.cuh: with g = lane / 4 and t = lane % 4, x[m][n][2 h + i] is row
// 16 m + 8 h + g, column 8 n + 2 t + i. So the 4 lanes of a quad hold the rows
// (m, h) of that g between them.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_WARP_MATH_CUH_
#define SKRULL_CUDA_ATTENTION_CUDA_WARP_MATH_CUH_

#include <cmath>
#include <cstdint>

#include "skrull/cuda/attention/cuda/segment_mask.cuh"
#include "skrull/cuda/attention/cuda/shared_tile.cuh"
#include "skrull/cuda/kernels/mma.cuh"
#include "skrull/cuda/kernels/portable.cuh"

namespace skrull::exec::flash {

// Of (m, h) in the comment above, relative to the warp's first row.
__device__ __forceinline__ int FragmentRow(int m, int h) {
  return 16 * m + 8 * h + LaneOfThread() / 4;
}
__device__ __forceinline__ int FragmentColumn(int n, int i) {
  return 8 * n + 2 * (LaneOfThread() % 4) + i;
}

template <int kM, int kN>
__device__ __forceinline__ void SetZero(float (&x)[kM][kN][4]) {
  SKRULL_UNROLL
  for (int m = 0; m < kM; ++m) {
    SKRULL_UNROLL
    for (int n = 0; n < kN; ++n) {
      SKRULL_UNROLL
      for (int e = 0; e < 4; ++e) x[m][n][e] = 0;
    }
  }
}

// Rows of a tile, [16 kM, kDim] from first_row on, as operands A.
template <int kDim, int kM>
__device__ __forceinline__ void LoadRows(uint32_t (&a)[kDim / 16][kM][4],
                                         const uint16_t* tile, int first_row) {
  SKRULL_UNROLL
  for (int step = 0; step < kDim / 16; ++step) {
    SKRULL_UNROLL
    for (int m = 0; m < kM; ++m) {
      LoadA<kDim>(a[step][m], tile, first_row + 16 * m, step);
    }
  }
}

// x += a b^T for one step of 16 columns; b is [8 kN, kDim].
template <class T, int kDim, int kM, int kN>
__device__ __forceinline__ void MultiplyStep(float (&x)[kM][kN][4],
                                             const uint32_t (&a)[kM][4],
                                             const uint16_t* b, int step) {
  SKRULL_UNROLL
  for (int pair = 0; pair < kN / 2; ++pair) {
    uint32_t columns[4];
    LoadBOfRows<kDim>(columns, b, 16 * pair, step);
    SKRULL_UNROLL
    for (int m = 0; m < kM; ++m) {
      kernels::Multiply<T>(x[m][2 * pair], a[m], columns[0], columns[1]);
      kernels::Multiply<T>(x[m][2 * pair + 1], a[m], columns[2], columns[3]);
    }
  }
}

// x = a b^T, with a [16 kM, kDim] in registers and b [8 kN, kDim].
template <class T, int kDim, int kM, int kN>
__device__ __forceinline__ void MultiplyRows(
    float (&x)[kM][kN][4], const uint32_t (&a)[kDim / 16][kM][4],
    const uint16_t* b) {
  SetZero(x);
  SKRULL_UNROLL
  for (int step = 0; step < kDim / 16; ++step) {
    MultiplyStep<T, kDim>(x, a[step], b, step);
  }
}

// The same with `a` in shared memory, from first_row on.
template <class T, int kDim, int kM, int kN>
__device__ __forceinline__ void MultiplySharedRows(float (&x)[kM][kN][4],
                                                   const uint16_t* a,
                                                   int first_row,
                                                   const uint16_t* b) {
  SetZero(x);
  SKRULL_UNROLL
  for (int step = 0; step < kDim / 16; ++step) {
    uint32_t rows[kM][4];
    SKRULL_UNROLL
    for (int m = 0; m < kM; ++m) {
      LoadA<kDim>(rows[m], a, first_row + 16 * m, step);
    }
    MultiplyStep<T, kDim>(x, rows, b, step);
  }
}

// x += p b, with p [16 kM, 8 kN] rounded to T and b [8 kN, kDim].
template <class T, int kDim, int kM, int kN>
__device__ __forceinline__ void MultiplyAdd(float (&x)[kM][kDim / 8][4],
                                            const float (&p)[kM][kN][4],
                                            const uint16_t* b) {
  SKRULL_UNROLL
  for (int step = 0; step < kN / 2; ++step) {
    // Two fragments C next to each other are one A.
    uint32_t a[kM][4];
    SKRULL_UNROLL
    for (int m = 0; m < kM; ++m) {
      SKRULL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float(&half)[4] = p[m][2 * step + i / 2];
        a[m][i] =
            kernels::PackPair<T>(half[2 * (i % 2)], half[2 * (i % 2) + 1]);
      }
    }
    SKRULL_UNROLL
    for (int pair = 0; pair < kDim / 16; ++pair) {
      uint32_t columns[4];
      LoadBOfColumns<kDim>(columns, b, 16 * step, pair);
      SKRULL_UNROLL
      for (int m = 0; m < kM; ++m) {
        kernels::Multiply<T>(x[m][2 * pair], a[m], columns[0], columns[1]);
        kernels::Multiply<T>(x[m][2 * pair + 1], a[m], columns[2], columns[3]);
      }
    }
  }
}

// Scores [queries, keys]: those that the mask hides become -inf. Row (m, h) is
// the query `first_query` + FragmentRow(m, h), column 0 is `first_key`.
template <int kM, int kN>
__device__ __forceinline__ void HideKeys(float (&s)[kM][kN][4],
                                         const SegmentMask& mask,
                                         int32_t first_query,
                                         int32_t first_key) {
  SKRULL_UNROLL
  for (int m = 0; m < kM; ++m) {
    SKRULL_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int32_t visible =
          mask.KeysOf(first_query + FragmentRow(m, h)) - first_key;
      SKRULL_UNROLL
      for (int n = 0; n < kN; ++n) {
        SKRULL_UNROLL
        for (int i = 0; i < 2; ++i) {
          if (FragmentColumn(n, i) >= visible) s[m][n][2 * h + i] = -INFINITY;
        }
      }
    }
  }
}

// The same for transposed scores [keys, queries]: row (m, h) is hidden from
// columns [0, hidden + FragmentRow(m, h)).
template <int kM, int kN>
__device__ __forceinline__ void HideQueries(float (&s)[kM][kN][4],
                                            int32_t hidden) {
  SKRULL_UNROLL
  for (int m = 0; m < kM; ++m) {
    SKRULL_UNROLL
    for (int h = 0; h < 2; ++h) {
      SKRULL_UNROLL
      for (int n = 0; n < kN; ++n) {
        SKRULL_UNROLL
        for (int i = 0; i < 2; ++i) {
          if (FragmentColumn(n, i) < hidden + FragmentRow(m, h)) {
            s[m][n][2 * h + i] = -INFINITY;
          }
        }
      }
    }
  }
}

// A value for each row (m, h).
template <int kM>
__device__ __forceinline__ void SetRows(float (&rows)[kM][2], float value) {
  SKRULL_UNROLL
  for (int m = 0; m < kM; ++m) rows[m][0] = rows[m][1] = value;
}

// Writes x, with rows (m, h) times factor[m][h], rounded to T, to the first
// valid_rows of `destination`. It goes through `scratch`, 16 kM rows of a tile
// that no other warp uses, so that rows leave in pieces of 16 bytes.
template <class T, int kDim, int kM>
__device__ __forceinline__ void StoreRows(const float (&x)[kM][kDim / 8][4],
                                          const float (&factor)[kM][2],
                                          uint16_t* scratch,
                                          uint16_t* destination,
                                          int64_t row_stride, int valid_rows) {
  __syncwarp();  // all lanes are done with what was there
  SKRULL_UNROLL
  for (int m = 0; m < kM; ++m) {
    SKRULL_UNROLL
    for (int n = 0; n < kDim / 8; ++n) {
      SKRULL_UNROLL
      for (int h = 0; h < 2; ++h) {
        uint16_t* pair = scratch + (16 * m + 8 * h) * kDim +
                         PieceOffset<kDim>(FragmentRow(0, 0), n) +
                         FragmentColumn(0, 0);
        *reinterpret_cast<uint32_t*>(pair) = kernels::PackPair<T>(
            x[m][n][2 * h] * factor[m][h], x[m][n][2 * h + 1] * factor[m][h]);
      }
    }
  }
  __syncwarp();
  constexpr int kPieces = kDim / kPieceElements;
  constexpr int kStep = 32 / kPieces;  // rows written at once
  const int first = LaneOfThread() / kPieces;
  const int piece = LaneOfThread() % kPieces;
  destination += first * row_stride + piece * kPieceElements;
  SKRULL_UNROLL
  for (int i = 0; i < 16 * kM; i += kStep) {
    if (first + i < valid_rows) {
      *reinterpret_cast<uint4*>(destination) = *reinterpret_cast<const uint4*>(
          scratch + PieceOffset<kDim>(first + i, piece));
    }
    destination += kStep * row_stride;
  }
}

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_WARP_MATH_CUH_
