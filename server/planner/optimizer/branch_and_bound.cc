#include "skrull/planner/optimizer/branch_and_bound.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "skrull/planner/layout.h"
#include "skrull/planner/lower_bound.h"

namespace skrull {
namespace {

constexpr auto kSequences = static_cast<size_t>(kMostSearchedSequences);
constexpr auto kRanks = static_cast<size_t>(kMostSearchedRanks);
// More than this many orders of micro-batches are not tried: 6!.
constexpr size_t kMostOrdered = 6;
// Placements whose trial takes about as long as running a plan's clock.
constexpr int64_t kNodesPerOrder = 10;
// A plan must be better by this share to count: keeps rounding from deciding.
constexpr double kLeastGain = 1e-12;

class Search {
 public:
  Search(const Job& job, const CostModel& cost,
         std::span<const int64_t> lengths, double known, int64_t most_nodes)
      : job_(job),
        cost_(cost),
        lengths_(lengths),
        ranks_(static_cast<size_t>(job.pool().ranks())),
        cp_size_(static_cast<size_t>(job.pool().cp_size)),
        dp_size_(static_cast<size_t>(job.pool().dp_size)),
        overhead_(job.cost().seconds_per_micro_batch),
        uniform_(job.parallelism().uniform_micro_batch_count),
        best_seconds_(known),
        enough_(ComputeLowerBound(job, cost, lengths).seconds *
                (1 + kLeastGain)),
        nodes_left_(most_nodes) {
    const BlockScope scope = job.parallelism().block_scope;
    for (const int32_t degree : AllowedDegrees(scope, job.pool())) {
      const int64_t longest = job.LongestOnDegree(degree);
      for (const Block& block : AllowedBlocks(scope, job.pool(), degree)) {
        blocks_.push_back({block, longest});
      }
    }
    order_.resize(lengths.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return lengths[a] > lengths[b];
    });
    work_left_.assign(lengths.size() + 1, 0.0);
    tokens_left_.assign(lengths.size() + 1, 0);
    for (size_t n = lengths.size(); n-- > 0;) {
      work_left_[n] = work_left_[n + 1] + LeastWork(lengths[order_[n]]);
      tokens_left_[n] = tokens_left_[n + 1] + lengths[order_[n]];
    }
    micro_batches_.resize(lengths.size());
    for (MicroBatch& mb : micro_batches_) mb.tokens.assign(blocks_.size(), 0);
  }

  std::vector<MicroBatchPlan> Run() {
    for (const int64_t most_turns :
         {int64_t{1}, int64_t{2}, kMostSearchedSequences}) {
      Place(0, 0, 0, most_turns);
    }
    return std::move(best_);
  }

 private:
  struct AllowedBlock {
    Block block;
    int64_t longest = 0;  // tokens it holds when empty
  };
  // Ranks and DP ranks of one micro-batch.
  struct State {
    std::array<RankLoad, kRanks> load{};
    std::array<int64_t, kRanks> gathered{};
    std::array<int64_t, kRanks> sequences{};  // per DP rank
    std::array<double, kRanks> slowest{};     // per DP rank, its own ranks only
    double busy = 0;                          // compute seconds of all ranks
    std::array<int64_t, kRanks> tokens{};     // per DP rank, rows of its ranks
  };
  struct MicroBatch {
    State state;
    std::vector<int64_t> tokens;  // per block
    std::vector<SequencePlacement> placements;
  };
  struct Choice {
    double bound = 0;
    size_t id = 0;  // micro-batch * blocks + block
  };

  // Rank-seconds of the sequence on the degree where that is least.
  double LeastWork(int64_t tokens) const {
    double least = std::numeric_limits<double>::infinity();
    for (const AllowedBlock& b : blocks_) {
      if (tokens > b.longest) continue;
      const int32_t degree = b.block.degree;
      least = std::min(least, degree * cost_.Comp(tokens, degree).total());
    }
    return least;
  }

  // Puts the sequence on the block; false if that breaks a memory rule, the
  // state is then unfinished.
  bool Add(size_t k, size_t b, MicroBatch& mb) const {
    const Block& block = blocks_[b].block;
    const int64_t tokens = lengths_[k];
    if (tokens > blocks_[b].longest) return false;
    State& state = mb.state;
    const CompSeconds comp = cost_.Comp(tokens, block.degree);
    const int64_t before = mb.tokens[b];
    const double exchange =
        cost_.Exchange(block, before + tokens) - cost_.Exchange(block, before);
    for (int32_t r = 0; r < block.degree; ++r) {
      const auto rank = static_cast<size_t>(block.first_rank + r);
      RankLoad& load = state.load[rank];
      CompSeconds& sum = block.degree == 1 ? load.local : load.sharded;
      sum.Add(comp);
      load.exchange += exchange;
      const int64_t rows = BlockRows(before + tokens, block.degree, r) -
                           BlockRows(before, block.degree, r);
      load.tokens += rows;
      state.tokens[rank / cp_size_] += rows;
      if (block.degree > 1) state.gathered[rank] += tokens;
      if (!job_.FitsRank(load.tokens, state.gathered[rank])) return false;
      double& slowest = state.slowest[rank / cp_size_];
      slowest = std::max(slowest, cost_.RankSeconds(load));
    }
    state.busy += block.degree * comp.total();
    const auto first = static_cast<size_t>(block.first_rank);
    const auto last = first + static_cast<size_t>(block.degree) - 1;
    for (size_t d = first / cp_size_; d <= last / cp_size_; ++d) {
      if (++state.sequences[d] > job_.max_sequences_per_micro_batch()) {
        return false;
      }
    }
    return true;
  }

  // No completion of what is placed takes less, whatever the order of the
  // micro-batches. `next`: the next index into order_.
  double Bound(size_t next, size_t used) const {
    const int64_t group_room = job_.bucket_size() * job_.pool().cp_size;
    double slowest = 0;
    double busy = work_left_[next];
    int64_t room = 0;   // rows free in the micro-batches that DP ranks run
    int64_t count = 0;  // of those, over all DP ranks
    for (size_t i = 0; i < used; ++i) busy += micro_batches_[i].state.busy;
    for (size_t d = 0; d < dp_size_; ++d) {
      double ready = 0;
      for (size_t i = 0; i < used; ++i) {
        const State& state = micro_batches_[i].state;
        if (state.sequences[d] == 0 && !uniform_) continue;
        ready += overhead_ + state.slowest[d];
        room += group_room - state.tokens[d];
        ++count;
      }
      slowest = std::max(slowest, ready);
    }
    // What finds no room needs more micro-batches.
    const int64_t over = std::max(int64_t{0}, tokens_left_[next] - room);
    int64_t more = (over + group_room - 1) / group_room;
    if (uniform_) {
      const auto dp_size = static_cast<int64_t>(dp_size_);
      more = (more + dp_size - 1) / dp_size;
      slowest += overhead_ * static_cast<double>(more);
      more *= dp_size;
    }
    const double even = busy / static_cast<double>(ranks_) +
                        overhead_ * static_cast<double>(count + more) /
                            static_cast<double>(dp_size_);
    return std::max(slowest, even);
  }

  // Everything is placed: keeps the plan if some order of its micro-batches is
  // the fastest so far. Without blocks across DP ranks order does not matter.
  void Finish(size_t used) {
    std::array<size_t, kSequences> at{};
    const auto end = at.begin() + static_cast<std::ptrdiff_t>(used);
    std::iota(at.begin(), end, size_t{0});
    bool joined = false;  // DP ranks, by some block
    for (size_t i = 0; i < used; ++i) {
      for (const SequencePlacement& p : micro_batches_[i].placements) {
        joined = joined || p.degree > job_.pool().cp_size;
      }
    }
    const bool ordered = joined && used <= kMostOrdered;
    do {
      nodes_left_ -= kNodesPerOrder;
      StepClock clock(job_, cost_);
      for (size_t i = 0; i < used; ++i) {
        clock.Run(micro_batches_[at[i]].placements);
      }
      if (clock.seconds() >= best_seconds_ * (1 - kLeastGain)) continue;
      best_seconds_ = clock.seconds();
      best_.clear();
      for (size_t i = 0; i < used; ++i) {
        best_.push_back({.placements = micro_batches_[at[i]].placements});
      }
    } while (ordered && nodes_left_ >= 0 &&
             std::next_permutation(at.begin(), end));
  }

  // `next`: index into order_; `used`: micro-batches that hold something;
  // `least_id`: of two equally long sequences the second takes no earlier
  // choice than the first, so that they are not permuted.
  // `turns_left`: how often a choice may be taken that is not the first.
  void Place(size_t next, size_t used, size_t least_id, int64_t turns_left) {
    if (next == order_.size()) return Finish(used);
    const size_t k = order_[next];
    std::vector<Choice> choices;
    const size_t open = std::min(used + 1, micro_batches_.size());
    for (size_t id = least_id; id < open * blocks_.size(); ++id) {
      if (--nodes_left_ < 0) return;
      const size_t i = id / blocks_.size();
      MicroBatch& mb = micro_batches_[i];
      const State saved = mb.state;
      if (Add(k, id % blocks_.size(), mb)) {
        const double bound = Bound(next + 1, std::max(used, i + 1));
        if (bound < best_seconds_ * (1 - kLeastGain)) {
          choices.push_back({bound, id});
        }
      }
      mb.state = saved;
    }
    std::stable_sort(
        choices.begin(), choices.end(),
        [](const Choice& a, const Choice& b) { return a.bound < b.bound; });
    const bool same_next =
        next + 1 < order_.size() && lengths_[order_[next + 1]] == lengths_[k];
    for (const Choice& choice : choices) {
      const bool turn = &choice != choices.data();
      if (turn && turns_left == 0) return;
      if (best_seconds_ <= enough_ || nodes_left_ < 0 ||
          choice.bound >= best_seconds_ * (1 - kLeastGain)) {
        return;
      }
      const size_t i = choice.id / blocks_.size();
      const size_t b = choice.id % blocks_.size();
      MicroBatch& mb = micro_batches_[i];
      const State saved = mb.state;
      Add(k, b, mb);
      mb.tokens[b] += lengths_[k];
      mb.placements.push_back({.sequence = static_cast<int32_t>(k),
                               .token_count = static_cast<int32_t>(lengths_[k]),
                               .first_rank = blocks_[b].block.first_rank,
                               .degree = blocks_[b].block.degree});
      Place(next + 1, std::max(used, i + 1), same_next ? choice.id : 0,
            turns_left - (turn ? 1 : 0));
      mb.placements.pop_back();
      mb.tokens[b] -= lengths_[k];
      mb.state = saved;
    }
  }

  const Job& job_;
  const CostModel& cost_;
  const std::span<const int64_t> lengths_;
  const size_t ranks_;
  const size_t cp_size_;
  const size_t dp_size_;
  const double overhead_;
  const bool uniform_;
  double best_seconds_;
  const double enough_;  // no plan takes less
  int64_t nodes_left_;
  std::vector<AllowedBlock> blocks_;
  std::vector<size_t> order_;  // sequences by falling length
  // [n]: rank-seconds that sequences order_[n..] need at least.
  std::vector<double> work_left_;
  std::vector<int64_t> tokens_left_;  // [n]: of sequences order_[n..]
  std::vector<MicroBatch> micro_batches_;
  std::vector<MicroBatchPlan> best_;
};

}  // namespace

std::vector<MicroBatchPlan> BranchAndBound(const Job& job,
                                           const CostModel& cost,
                                           std::span<const int64_t> lengths,
                                           double known, int64_t most_nodes) {
  return Search(job, cost, lengths, known, most_nodes).Run();
}

}  // namespace skrull
