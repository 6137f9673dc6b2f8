// SearchState's invariants, looked at one by one from what lies where.
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "skrull/planner/optimizer/search_state.h"

namespace skrull {

absl::Status SearchState::CheckConsistency() const {
  std::vector<std::vector<Slot>> slots(static_cast<size_t>(micro_batches_));
  for (auto& of : slots) of.resize(static_cast<size_t>(ranks_));
  std::vector<int> listed(spots_.size(), 0);
  // Loads are sums of what came and went: exact to rounding of the whole batch.
  double tolerance = 0;
  for (const int64_t tokens : lengths_) {
    tolerance += 1e-9 * cost_.Comp(tokens, 1).total();
    for (const Level& level : levels_) {
      tolerance += 1e-9 * cost_.Exchange(level.blocks.front(), tokens);
    }
  }
  for (int32_t i = 0; i < micro_batches_; ++i) {
    for (int32_t d = 0; d < num_degrees(); ++d) {
      for (int32_t b = 0; b < std::ssize(level(d).blocks); ++b) {
        const Spot at{i, d, b};
        const Block block = BlockOf(at);
        int64_t tokens = 0;
        for (int32_t k = FirstOn(at); k >= 0; k = NextOn(k)) {
          if (spot(k) != at) {
            return absl::InternalError(absl::StrCat("(1) sequence ", k));
          }
          ++listed[static_cast<size_t>(k)];
          tokens += length(k);
          for (int32_t r = 0; r < block.degree; ++r) {
            Slot& slot =
                slots[static_cast<size_t>(i)]
                     [static_cast<size_t>(block.first_rank - first_rank_ + r)];
            (d == 0 ? slot.load.local : slot.load.sharded)
                .Add(cost_.Comp(length(k), block.degree));
          }
        }
        if (tokens != block_state(at).tokens) {
          return absl::InternalError(absl::StrCat(
              "(2) micro-batch ", i, ", degree ", block.degree, ", block ", b));
        }
        for (int32_t r = 0; r < block.degree; ++r) {
          Slot& slot =
              slots[static_cast<size_t>(i)]
                   [static_cast<size_t>(block.first_rank - first_rank_ + r)];
          slot.load.tokens += MaxBlockRows(tokens, block.degree);
          slot.load.exchange += cost_.Exchange(block, tokens);
          if (d > 0) slot.gathered += tokens;
        }
      }
    }
    for (int32_t r = 0; r < ranks_; ++r) {
      const Slot& want = slots[static_cast<size_t>(i)][static_cast<size_t>(r)];
      const Slot& have = micro_batch(i).slots[static_cast<size_t>(r)];
      const double seconds = cost_.RankSeconds(want.load);
      if (want.load.tokens != have.load.tokens ||
          want.gathered != have.gathered ||
          std::abs(seconds - cost_.RankSeconds(have.load)) > tolerance) {
        return absl::InternalError(
            absl::StrCat("(2) micro-batch ", i, ", rank ", r));
      }
      if (!job_.FitsRank(have.load.tokens, have.gathered)) {
        return absl::InternalError(
            absl::StrCat("(3) micro-batch ", i, ", rank ", r));
      }
    }
  }
  for (int32_t k = 0; k < std::ssize(spots_); ++k) {
    if (listed[static_cast<size_t>(k)] != (spot(k).placed() ? 1 : 0)) {
      return absl::InternalError(absl::StrCat("(1) sequence ", k));
    }
  }
  return absl::OkStatus();
}

}  // namespace skrull
