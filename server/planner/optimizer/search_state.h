// A batch on the pool under search: who holds what, how long each rank takes,
// and where one more sequence would cost least.
//
// M micro-batches times the pool's ranks make M * ranks *slots*. A sequence
// lies on a block of slots of one micro-batch. Adding, removing and trying a
// sequence cost O(block), whatever the size of the batch.
//
// Memory is counted per slot as local tokens plus, for each block, the rows of
// the block's fullest rank: never less than what a rank holds, so a legal state
// is a legal plan.
//
// Invariants, checked by CheckConsistency():
//   (1) each sequence lies on at most one allowed block of one micro-batch;
//   (2) each slot's load is the sum over the sequences on it;
//   (3) every slot obeys the memory rules and every DP rank's micro-batch the
//       sequence cap.
// Not thread-safe. `job`, `cost` and `lengths` must outlive it.
#ifndef SKRULL_SERVER_PLANNER_OPTIMIZER_SEARCH_STATE_H_
#define SKRULL_SERVER_PLANNER_OPTIMIZER_SEARCH_STATE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "skrull/planner/cost_model.h"
#include "skrull/planner/job.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/plan.h"
#include "skrull/planner/tournament_tree.h"

namespace skrull {

// Where a sequence lies: the block'th allowed block of the degree'th allowed
// degree, in one micro-batch.
struct Spot {
  int32_t micro_batch = -1;  // -1 = nowhere
  int32_t degree = 0;        // index into SearchState::degrees()
  int32_t block = 0;         // index into that degree's blocks

  bool placed() const { return micro_batch >= 0; }
  friend bool operator==(const Spot&, const Spot&) = default;
};

class SearchState {
 public:
  static constexpr double kDoesNotFit = std::numeric_limits<double>::infinity();

  // Slots are those of DP ranks [first_dp_rank, first_dp_rank + dp_ranks): only
  // blocks inside them exist here. REQUIRES: the range lies in the pool.
  SearchState(const Job& job, const CostModel& cost,
              std::span<const int64_t> lengths, int32_t first_dp_rank,
              int32_t dp_ranks);

  // Starts anew with this many empty micro-batches. O(micro_batches * ranks).
  void Reset(int32_t micro_batches);

  int32_t micro_batches() const { return micro_batches_; }
  // Ranks are counted from the first of first_dp_rank here.
  int32_t ranks() const { return ranks_; }
  int32_t cp_size() const { return job_.pool().cp_size; }
  int32_t num_degrees() const { return static_cast<int32_t>(levels_.size()); }
  int32_t degree(int32_t index) const { return level(index).degree; }
  // True if an empty block of the degree holds the sequence.
  bool DegreeHolds(int32_t degree, int32_t sequence) const {
    return length(sequence) <= level(degree).longest;
  }
  int64_t length(int32_t sequence) const {
    return lengths_[static_cast<size_t>(sequence)];
  }
  const Spot& spot(int32_t sequence) const {
    return spots_[static_cast<size_t>(sequence)];
  }
  Block BlockOf(const Spot& spot) const {
    return level(spot.degree).blocks[static_cast<size_t>(spot.block)];
  }

  // The same with ranks counted as here, see ranks().
  Block LocalBlockOf(const Spot& spot) const {
    const Block block = BlockOf(spot);
    return {block.first_rank - first_rank_, block.degree};
  }

  // Seconds of the slowest slot of the spot with the sequence added;
  // kDoesNotFit if that breaks a memory rule. REQUIRES: the sequence is
  // nowhere. O(block).
  double Try(int32_t sequence, const Spot& spot) const;

  // Seconds of the slot of a local spot with `in` added and `out`, which is
  // local there, taken away (-1: nothing); kDoesNotFit if that breaks a memory
  // rule. O(1).
  double TrySwap(const Spot& spot, int32_t in, int32_t out) const;

  // REQUIRES for Add: Try fits. For Remove: the sequence is placed. O(block).
  void Add(int32_t sequence, const Spot& spot);
  void Remove(int32_t sequence);

  // The spot in the micro-batch, on blocks of the degree, that looks best for
  // the sequence: the block whose slowest slot is fastest among those with
  // room. A spot with micro_batch -1 if none has room. O(1) while that block
  // stands and has room, else O(ranks / degree); O(ranks * degrees) more after
  // a removal.
  Spot BestSpot(int32_t sequence, int32_t micro_batch, int32_t degree);
  // No spot of the degree in the micro-batch has a slowest slot that takes
  // less. REQUIRES: degree >= 1. O(1) while that block stands.
  double QuickestSeconds(int32_t micro_batch, int32_t degree);
  // Seconds of the spot's slowest slot as it is. O(1) after BestSpot.
  double SpotSeconds(const Spot& spot) const;

  // Seconds of the slot. O(1).
  double SlotSeconds(int32_t micro_batch, int32_t rank) const {
    return cost_.RankSeconds(load(micro_batch, rank));
  }
  // The slowest slot of the micro-batch: its rank. O(ranks).
  int32_t SlowestRank(int32_t micro_batch) const;

  // The first sequence on the spot's own block, and the one after `sequence`;
  // -1 if there is none. The last added comes first.
  int32_t FirstOn(const Spot& spot) const { return block_state(spot).head; }
  int32_t NextOn(int32_t sequence) const {
    return next_[static_cast<size_t>(sequence)];
  }
  // The spot of the block of that degree around a rank; micro_batch -1 if there
  // is none.
  Spot SpotAround(int32_t micro_batch, int32_t degree, int32_t rank) const;

  // Appends each sequence's placement to micro-batch i of `out`, with ranks of
  // the pool and sequence k called names[k]. `out` grows as needed. REQUIRES:
  // every sequence is placed.
  void Export(std::span<const int32_t> names,
              std::vector<MicroBatchPlan>* out) const;

  // OK, or INTERNAL naming the broken invariant. For tests. O(all).
  absl::Status CheckConsistency() const;

 private:
  // All allowed blocks of one degree.
  struct Level {
    int32_t degree = 1;
    int64_t longest = 0;            // tokens an empty block holds
    std::vector<Block> blocks;      // in ranks of the pool
    std::vector<int32_t> block_of;  // per rank; -1 = in no block of the degree
  };
  // One block, or at level 0 one rank, of one micro-batch.
  struct BlockState {
    int64_t tokens = 0;  // of the sequences on it
    int32_t head = -1;   // first of them, linked through next_
    // Over its slots: the slowest one's seconds, the fullest one's rows and
    // gathered tokens. Upper bounds while MicroBatch::stale.
    double slowest = 0;
    int64_t fullest = 0;
    int64_t gathered = 0;
  };
  struct Slot {
    RankLoad load;
    int64_t gathered = 0;  // tokens of the sequences it holds shards of
  };
  struct MicroBatch {
    std::vector<Slot> slots;                      // per rank
    std::vector<std::vector<BlockState>> levels;  // per degree, per block
    std::vector<int64_t> sequences;               // per DP rank
    // Per degree: the first of the blocks whose `slowest` is least; -1 = not
    // known.
    std::vector<int32_t> quickest;
    bool stale = false;        // something was removed since the last Refresh
    bool trees_stale = false;  // the trees below miss changes
    TournamentTree<double, std::less<>> least_busy;  // by compute seconds
    TournamentTree<int64_t, std::less<>> fewest_tokens;
  };

  const Level& level(int32_t index) const {
    return levels_[static_cast<size_t>(index)];
  }
  MicroBatch& micro_batch(int32_t index) {
    return state_[static_cast<size_t>(index)];
  }
  const MicroBatch& micro_batch(int32_t index) const {
    return state_[static_cast<size_t>(index)];
  }
  const RankLoad& load(int32_t micro_batch_index, int32_t rank) const {
    return micro_batch(micro_batch_index).slots[static_cast<size_t>(rank)].load;
  }
  BlockState& block_state(const Spot& spot) {
    return micro_batch(spot.micro_batch)
        .levels[static_cast<size_t>(spot.degree)]
               [static_cast<size_t>(spot.block)];
  }
  const BlockState& block_state(const Spot& spot) const {
    return const_cast<SearchState*>(this)->block_state(spot);
  }

  // Rows the block's fullest rank gains when its tokens change.
  int64_t RowsGained(const Spot& spot, int64_t from, int64_t to) const;
  // True if the sequence cap allows one more on the spot's DP ranks.
  bool CapAllows(const Spot& spot) const;
  // Adds (sign 1) or takes away (sign -1) the sequence's share of its slots.
  void Apply(int32_t sequence, const Spot& spot, int sign);
  // Recomputes what `stale` and `trees_stale` say is out of date.
  void Refresh(MicroBatch& micro_batch);
  // Marks a block of that degree as slowed down to `seconds`.
  static void Slow(MicroBatch& micro_batch, size_t degree, int32_t block,
                   double seconds);
  // MicroBatch::quickest of the degree, found anew if it is not known.
  static int32_t Quickest(MicroBatch& micro_batch, int32_t degree);
  // True if the sequence fits on a block of degree > 1, as Refresh left it.
  bool HasRoom(int64_t tokens, const Spot& spot) const;
  void RefreshTrees(MicroBatch& micro_batch);

  const Job& job_;
  const CostModel& cost_;
  std::span<const int64_t> lengths_;
  const int32_t first_rank_;  // of the pool
  const int32_t ranks_;
  const bool cap_matters_;  // the batch has more sequences than the cap
  std::vector<Level> levels_;
  int32_t micro_batches_ = 0;
  std::vector<MicroBatch> state_;  // the first micro_batches_ are in use
  std::vector<Spot> spots_;        // per sequence
  std::vector<int32_t> next_;      // per sequence: next on its block
  std::vector<int32_t> previous_;  // per sequence
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_OPTIMIZER_SEARCH_STATE_H_
