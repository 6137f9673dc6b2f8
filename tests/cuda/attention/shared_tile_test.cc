// Where tiles lie in shared memory: each piece once, and no two accesses that
// the hardware serves together in the same banks.
#include "skrull/cuda/attention/cuda/shared_tile.cuh"

#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <vector>

namespace skrull::exec::testing {
namespace {

using flash::LaneOffset;
using flash::Piece;
using flash::PieceOffset;

// The group of 4 banks in which an offset of 16-bit elements lies. 8 accesses
// of 16 bytes are served at once if their groups differ.
int BankGroup(int offset) { return offset * 2 / 16 % 8; }

template <int kDim>
void CheckTile() {
  constexpr int kPieces = kDim / 8;
  std::set<int> offsets;
  for (int row = 0; row < 64; ++row) {
    for (int piece = 0; piece < kPieces; ++piece) {
      offsets.insert(PieceOffset<kDim>(row, piece));
    }
  }
  CHECK(offsets.size() == size_t{64 * kPieces});
  CHECK(*offsets.begin() == 0);
  CHECK(*offsets.rbegin() == 64 * kDim - 8);
  for (const int offset : offsets) CHECK(offset % 8 == 0);
}

template <int kDim>
void CheckLoads() {
  for (int step = 0; step < kDim / 16; ++step) {
    for (const bool rows : {true, false}) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        std::set<int> groups;
        for (int lane = 8 * matrix; lane < 8 * matrix + 8; ++lane) {
          const Piece p =
              rows ? flash::PieceOfRows(lane) : flash::PieceOfColumns(lane);
          // Matrix i is half i % 2 of the rows and i / 2 of the columns, or
          // the other way round.
          const int row_half = rows ? matrix % 2 : matrix / 2;
          const int column_half = rows ? matrix / 2 : matrix % 2;
          CHECK(p.row == 8 * row_half + lane % 8);
          CHECK(p.piece == column_half);
          const int offset = LaneOffset<kDim>(p, step);
          CHECK(offset == PieceOffset<kDim>(p.row, 2 * step + p.piece));
          // Rows at a distance of 8 lie where the loads expect them.
          CHECK(offset + 48 * kDim ==
                PieceOffset<kDim>(p.row + 48, 2 * step + p.piece));
          groups.insert(BankGroup(offset));
        }
        CHECK(groups.size() == 8);
      }
    }
  }
}

// Copies and stores of 16 bytes: 8 threads next to each other.
template <int kDim>
void CheckCopies() {
  constexpr int kPieces = kDim / 8;
  for (int thread = 0; thread < 128; thread += 8) {
    std::set<int> groups;
    for (int t = thread; t < thread + 8; ++t) {
      groups.insert(BankGroup(PieceOffset<kDim>(t / kPieces, t % kPieces)));
    }
    CHECK(groups.size() == 8);
  }
}

// Fragments on their way out: 32 lanes write 4 bytes each.
template <int kDim>
void CheckFragmentStores() {
  for (int n = 0; n < kDim / 8; ++n) {
    std::set<int> banks;
    for (int lane = 0; lane < 32; ++lane) {
      const int offset = PieceOffset<kDim>(lane / 4, n) + 2 * (lane % 4);
      banks.insert(offset * 2 / 4 % 32);
    }
    CHECK(banks.size() == 32);
  }
}

}  // namespace

TEST_CASE("shared tile: pieces have places of their own", "[flash][tile]") {
  CheckTile<64>();
  CheckTile<128>();
}

TEST_CASE("shared tile: accesses have no bank conflicts", "[flash][tile]") {
  CheckLoads<64>();
  CheckLoads<128>();
  CheckCopies<64>();
  CheckCopies<128>();
  CheckFragmentStores<64>();
  CheckFragmentStores<128>();
}

}  // namespace skrull::exec::testing
