// Tiles in shared memory: rows of kDim 16-bit values in pieces of 16 bytes, the
// unit of asynchronous copies and of matrix loads.
//
// Piece p of row r lies where piece p ^ (r % 8) would. A row is 8 or 16 pieces,
// all 32 banks once or twice, so without that the 8 rows of a matrix load,
// which are the same piece of 8 rows, would share 4 banks. With it they have
// all 32, as have the 8 threads that copy 8 neighbouring pieces.
#ifndef SKRULL_CUDA_ATTENTION_CUDA_SHARED_TILE_CUH_
#define SKRULL_CUDA_ATTENTION_CUDA_SHARED_TILE_CUH_

#include <cstdint>

#include "skrull/cuda/kernels/mma.cuh"
#include "skrull/cuda/kernels/portable.cuh"

namespace skrull::exec::flash {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = 32 * kWarps;
inline constexpr int kPieceElements = 8;

// Of a piece in a tile, in elements.
template <int kDim>
__host__ __device__ constexpr int PieceOffset(int row, int piece) {
  static_assert(kDim % 64 == 0, "a row has all banks");
  return row * kDim + (piece ^ (row & 7)) * kPieceElements;
}

// Which piece a lane names in a load of four 8x8 matrices, relative to the
// first row and piece. Of operand A, stored [m, k]: both halves of the rows at
// k, then at k + 8. Also of B, stored [k, n], when it is loaded transposed:
// both halves of k at n, then at n + 8.
struct Piece {
  int row;
  int piece;  // 0 or 1
};
__host__ __device__ constexpr Piece PieceOfRows(int lane) {
  return {lane & 15, lane >> 4};
}
// Of operand B, stored [n, k]: both halves of k at n, then at n + 8.
__host__ __device__ constexpr Piece PieceOfColumns(int lane) {
  return {(lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1};
}

// PieceOffset<kDim>(row, 2 * step + piece), written so that a thread needs one
// register for each step and none for rows: those are distances of a multiple
// of 8 rows, constants of the instructions.
template <int kDim>
__host__ __device__ constexpr int LaneOffset(Piece p, int step) {
  return p.row * kDim + ((2 * step) ^ (p.piece ^ (p.row & 7))) * kPieceElements;
}

__device__ __forceinline__ int LaneOfThread() {
  return static_cast<int>(threadIdx.x % 32);
}
__device__ __forceinline__ int WarpOfThread() {
  return static_cast<int>(threadIdx.x / 32);
}

// Starts the copies of a tile of kRows rows, of which `source` is the first.
// Rows from `valid_rows` on become zeros and are not read. By all threads.
template <int kDim, int kRows>
__device__ __forceinline__ void CopyTile(uint16_t* tile, const uint16_t* source,
                                         int64_t row_stride, int valid_rows) {
  constexpr int kPieces = kDim / kPieceElements;
  constexpr int kStep = kThreads / kPieces;  // rows copied at once
  static_assert(kThreads % kPieces == 0 && kRows % kStep == 0);
  static_assert(kStep % 8 == 0, "a thread's pieces lie kStep * kDim apart");
  const int first = static_cast<int>(threadIdx.x / kPieces);
  const int piece = static_cast<int>(threadIdx.x % kPieces);
  tile += PieceOffset<kDim>(first, piece);
  source += first * row_stride + piece * kPieceElements;
  SKRULL_UNROLL
  for (int row = 0; row < kRows; row += kStep) {
    kernels::CopyAsync16(tile + row * kDim, source, first + row < valid_rows);
    source += kStep * row_stride;
  }
}

// Loads of operands; first_row is a multiple of 8.
//
// Operand A: rows [first_row, +16), columns [16 step, +16) of a tile.
template <int kDim>
__device__ __forceinline__ void LoadA(uint32_t (&a)[4], const uint16_t* tile,
                                      int first_row, int step) {
  kernels::LoadMatrices(
      a, tile + first_row * kDim +
             LaneOffset<kDim>(PieceOfRows(LaneOfThread()), step));
}

// Operands B of two products: columns [first_row, +8), [first_row + 8, +8) are
// rows of the tile, k is its columns [16 step, +16). b[0, 1] and b[2, 3].
template <int kDim>
__device__ __forceinline__ void LoadBOfRows(uint32_t (&b)[4],
                                            const uint16_t* tile, int first_row,
                                            int step) {
  kernels::LoadMatrices(
      b, tile + first_row * kDim +
             LaneOffset<kDim>(PieceOfColumns(LaneOfThread()), step));
}

// Operands B of two products: k is rows [first_row, +16) of the tile, the
// columns are its columns [16 step, +8), [16 step + 8, +8).
template <int kDim>
__device__ __forceinline__ void LoadBOfColumns(uint32_t (&b)[4],
                                               const uint16_t* tile,
                                               int first_row, int step) {
  kernels::LoadMatricesTransposed(
      b, tile + first_row * kDim +
             LaneOffset<kDim>(PieceOfRows(LaneOfThread()), step));
}

}  // namespace skrull::exec::flash

#endif  // SKRULL_CUDA_ATTENTION_CUDA_SHARED_TILE_CUH_
