// Would the other tests find a mistake in a kernel? A small kernel out of the
// attention kernels' parts, right and with one mistake of each class.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "skrull/cuda/attention/cuda/shared_tile.cuh"
#include "skrull/cuda/attention/cuda/warp_math.cuh"
#include "skrull/cuda/cpu/half.h"
#include "skrull/cuda/kernels/mma.cuh"
#include "skrull/cuda/kernels/portable.cuh"
#include "skrull/cuda/sim/launch.h"
#include "skrull/cuda/sim/sanitizers.h"

namespace skrull::exec::testing {
namespace {

constexpr Stream kNow{};
constexpr int kDim = 64;
constexpr int kRows = 64;
constexpr int64_t kSharedBytes = 2 * kRows * kDim * 2;

enum class Mistake {
  kNone,
  kNoWait,         // for the copies of a tile
  kNoBarrier,      // between a tile's arrival and its use by other warps
  kEarlyCopy,      // to the stage that is still read
  kOneRowTooMany,  // no zeros behind the last row
  kBehindShared,   // a tile behind the memory that the block has
};

// out [64, 64] = the sum of t t^T over the tiles t of 64 rows of x [rows, 64],
// bfloat16, of which the last may be cut. Double buffered, as in the attention
// kernels.
template <Mistake kMistake>
__global__ void SumOfSquares(const uint16_t* x, int rows, float* out) {
  SKRULL_DYNAMIC_SHARED(uint16_t, shared);
  constexpr int kTile = kRows * kDim;
  const auto copy = [&](int row, int stage) {
    const int shift = kMistake == Mistake::kBehindShared ? kDim : 0;
    flash::CopyTile<kDim, kRows>(
        shared + stage * (kTile + shift), x + row * kDim, kDim,
        rows - row + (kMistake == Mistake::kOneRowTooMany ? 1 : 0));
    kernels::CommitCopies();
  };
  copy(0, 0);
  const int warp_row = 16 * flash::WarpOfThread();
  float sum[1][kRows / 8][4];
  flash::SetZero(sum);
  int stage = 0;
  for (int row = 0; row < rows; row += kRows, stage ^= 1) {
    if (kMistake != Mistake::kNoWait) kernels::WaitForCopies<0>();
    if (kMistake != Mistake::kNoBarrier) __syncthreads();
    if (row + kRows < rows) {
      copy(row + kRows, kMistake == Mistake::kEarlyCopy ? stage : stage ^ 1);
    }
    float product[1][kRows / 8][4];
    flash::MultiplySharedRows<kernels::Bf16, kDim>(
        product, shared + stage * kTile, warp_row, shared + stage * kTile);
    for (int n = 0; n < kRows / 8; ++n) {
      for (int i = 0; i < 4; ++i) sum[0][n][i] += product[0][n][i];
    }
  }
  for (int n = 0; n < kRows / 8; ++n) {
    for (int i = 0; i < 4; ++i) {
      out[(warp_row + flash::FragmentRow(0, i / 2)) * kRows +
          flash::FragmentColumn(n, i % 2)] = sum[0][n][i];
    }
  }
}

// Runs the kernel; `out` is NaN where it writes nothing.
template <Mistake kMistake>
Status Launch(const std::vector<uint16_t>& x, int rows,
              std::vector<float>* out) {
  out->assign(kRows * kRows, NAN);
  return SKRULL_LAUNCH((SumOfSquares<kMistake>), 1, flash::kThreads,
                       kSharedBytes, kNow, x.data(), rows, out->data());
}

// In how many of 5 orders of threads the results are right. Fails the test if
// a launch fails.
template <Mistake kMistake>
int RightResults() {
  // Two tiles, the second cut; NaN behind the last row.
  constexpr int kLast = kRows + 20;
  std::vector<uint16_t> x(2 * kRows * kDim, 0xFFFF);
  for (int i = 0; i < kLast * kDim; ++i) {
    x[static_cast<size_t>(i)] =
        BFloat16(static_cast<float>(i % 7 - 3)).bits;  // sums are exact
  }
  int right = 0;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    sim::SetOrderSeed(seed);
    std::vector<float> out;
    REQUIRE(Launch<kMistake>(x, kLast, &out).ToString() == "OK");
    bool same = true;
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kRows; ++j) {
        float want = 0;
        for (int row = 0; row < kLast; row += kRows) {
          if (row + std::max(i, j) >= kLast) continue;
          for (int c = 0; c < kDim; ++c) {
            want += static_cast<float>((((row + i) * kDim + c) % 7 - 3) *
                                       (((row + j) * kDim + c) % 7 - 3));
          }
        }
        same &= out[static_cast<size_t>(i * kRows + j)] == want;
      }
    }
    right += same ? 1 : 0;
  }
  return right;
}

}  // namespace

TEST_CASE("flash mistakes: each class of them shows", "[flash][mistakes]") {
  CHECK(RightResults<Mistake::kNone>() == 5);
  CHECK(RightResults<Mistake::kNoWait>() == 0);
  CHECK(RightResults<Mistake::kNoBarrier>() == 0);
  CHECK(RightResults<Mistake::kEarlyCopy>() == 0);
  CHECK(RightResults<Mistake::kOneRowTooMany>() == 0);
}

#ifndef SKRULL_SIM_ASAN  // which ends the program at the write
TEST_CASE("flash mistakes: a tile behind the shared memory",
          "[flash][mistakes]") {
  const std::vector<uint16_t> x(2 * kRows * kDim);
  std::vector<float> out;
  const Status status = Launch<Mistake::kBehindShared>(x, 2 * kRows, &out);
  CHECK(status.code() == StatusCode::kInternal);
  CHECK(status.message().find("shared memory") != std::string::npos);
}
#endif

}  // namespace skrull::exec::testing
