// Placement of one micro-batch's sequences over the CP ranks of one DP rank.
//
// A sequence is either local to one rank or sharded over all of them, which is
// all that BLOCK_SCOPE_GROUP knows. Ranks here are CP ranks, from 0.
//
// Invariants, checked by CheckConsistency():
//   (1) each placed sequence is local to exactly one rank, or sharded;
//   (2) local_tokens(r) and local work of r are the sums over r's local
//       sequences;
//   (3) sharded_tokens() is the sum over sharded sequences, and load(r) ==
//       local_tokens(r) + BlockRows(sharded_tokens(), ranks, r).
// IsLegal() says whether every rank obeys the memory rules. Assign never breaks
// that, nor does Shard where FitsSharded; RollBack can, which is what its
// cascade is for (dacp.h).
//
// Not thread-safe. `job`, and the lengths and work of the batch, must outlive
// it. Memory O(ranks + sequences of the batch); reusable by Clear().
#ifndef SKRULL_SERVER_PLANNER_PLACEMENT_H_
#define SKRULL_SERVER_PLANNER_PLACEMENT_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "skrull/planner/job.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/tournament_tree.h"

namespace skrull {

class Placement {
 public:
  // Where a sequence is, if not on the rank of that number.
  static constexpr int32_t kSharded = -1;
  static constexpr int32_t kAbsent = -2;

  // `lengths[k]` is the length of the batch's sequence k, tokens, and `work[k]`
  // its CostModel::Work().
  Placement(const Job& job, std::span<const int64_t> lengths,
            std::span<const double> work);

  // Removes every sequence. O(ranks + placed sequences).
  void Clear();

  int32_t ranks() const { return static_cast<int32_t>(head_.size()); }
  // Sequences placed, in order of their first placement.
  std::span<const int32_t> sequences() const { return placed_; }
  // A rank, kSharded or kAbsent.
  int32_t rank_of(int32_t sequence) const {
    return rank_of_[static_cast<size_t>(sequence)];
  }
  int64_t local_tokens(int32_t rank) const { return most_tokens_.key(rank); }
  int64_t sharded_tokens() const { return sharded_tokens_; }
  // Rows of the rank, tokens. O(1).
  int64_t load(int32_t rank) const;
  int64_t roll_back_count() const { return roll_back_count_; }
  // The sequences as a plan lists them, in order of their first placement, on
  // the CP group that begins at `first_rank` of the pool. O(placed sequences).
  std::vector<SequencePlacement> Export(int32_t first_rank) const;

  // argmin L of the listing: the rank with the least local work. O(1).
  int32_t LeastLoadedRank() const { return least_work_.Best(); }
  // argmax RB: the rank with the most of its bucket left. O(log ranks).
  int32_t EmptiestRank() const;
  // argmin RB: the rank with the most rows. O(log ranks).
  int32_t FullestRank() const;
  // argmin RB among ranks that have a local sequence; -1 if none has.
  // O(log ranks).
  int32_t FullestRankWithLocal() const;

  // True if every rank obeys the memory rules. O(log ranks).
  bool IsLegal() const { return FitsWithSharded(sharded_tokens_); }
  // True if the rank still obeys them with the sequence local to it. O(1).
  bool FitsLocal(int32_t sequence, int32_t rank) const;
  // True if all ranks still obey them with the sequence sharded over them.
  // False on a single rank, which cannot shard. O(log ranks).
  bool FitsSharded(int32_t sequence) const;

  // Places an absent sequence. REQUIRES: FitsLocal. O(log ranks).
  void Assign(int32_t sequence, int32_t rank);
  // The same; where not FitsSharded, some rank is over its memory afterwards.
  void Shard(int32_t sequence);

  // Makes the rank's first local sequence, the shortest where they came in
  // ascending order, sharded: frees its tokens there and charges every rank its
  // rows. Can leave any rank over its memory. REQUIRES: the rank has a local
  // sequence. O(log ranks).
  void RollBack(int32_t rank);

  // OK, or INTERNAL naming the broken invariant; recomputes all from scratch.
  // For tests. O(ranks + sequences of the batch).
  absl::Status CheckConsistency() const;

 private:
  static constexpr int32_t kEnd = -1;

  int64_t length(int32_t sequence) const {
    return lengths_[static_cast<size_t>(sequence)];
  }
  // The one with more rows of `a`, which holds one shard row more than `b`
  // does, and `b`; -1 stands for none.
  int32_t Fuller(int32_t a, int32_t b) const;
  // True if all ranks obey the memory rules when `sharded` tokens are sharded.
  bool FitsWithSharded(int64_t sharded) const;
  void AddLocal(int32_t rank, int64_t tokens, double work);

  const Job& job_;
  std::span<const int64_t> lengths_;
  std::span<const double> work_;

  std::vector<int32_t> placed_;
  std::vector<int32_t> rank_of_;  // per sequence of the batch
  // Local sequences of each rank as a queue through next_, in order of Assign.
  std::vector<int32_t> head_;  // per rank
  std::vector<int32_t> tail_;  // per rank
  std::vector<int32_t> next_;  // per sequence of the batch
  int64_t sharded_tokens_ = 0;
  int64_t roll_back_count_ = 0;
  // Local tokens (both ways) and local work per rank.
  TournamentTree<int64_t, std::greater<>> most_tokens_;
  TournamentTree<int64_t, std::less<>> fewest_tokens_;
  TournamentTree<double, std::less<>> least_work_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_PLACEMENT_H_
