#include "skrull/tests/planner/exact_optimum.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/layout.h"

namespace skrull::testing {
namespace {

constexpr size_t kMost = 8;  // sequences, micro-batches, ranks

class Search {
 public:
  Search(const Job& job, std::span<const int64_t> lengths, double known,
         int64_t most_nodes)
      : job_(job),
        cost_(job),
        lengths_(lengths),
        ranks_(static_cast<size_t>(job.pool().ranks())),
        best_(known),
        nodes_left_(most_nodes) {
    const BlockScope scope = job.parallelism().block_scope;
    for (const int32_t degree : AllowedDegrees(scope, job.pool())) {
      for (const Block& block : AllowedBlocks(scope, job.pool(), degree)) {
        blocks_.push_back(block);
      }
    }
    order_.resize(lengths.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(),
              [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
    // [i]: rank-seconds that sequences order_[i..] need at least.
    work_left_.assign(lengths.size() + 1, 0.0);
    for (size_t i = lengths.size(); i-- > 0;) {
      const int64_t tokens = lengths[order_[i]];
      double least = std::numeric_limits<double>::infinity();
      for (const Block& block : blocks_) {
        if (tokens > job.LongestOnDegree(block.degree)) continue;
        least = std::min(
            least, block.degree * cost_.Comp(tokens, block.degree).total());
      }
      work_left_[i] = work_left_[i + 1] + least;
    }
    for (auto& of : placements_) of.reserve(kMost);
  }

  std::optional<double> Run() {
    Place(0, 0, 0);
    if (nodes_left_ < 0) return std::nullopt;
    return best_;
  }

 private:
  // Times and rows of every rank in one micro-batch; false if it breaks a
  // memory rule. Sets busy_[i], seconds_[i] and active_[i].
  bool Measure(size_t i) {
    std::array<RankLoad, kMost> load{};
    std::array<int64_t, kMost> gathered{};
    const int32_t cp_size = job_.pool().cp_size;
    std::array<int64_t, kMost> sequences{};
    active_[i].fill(false);
    for (const Block& block : blocks_) {
      int64_t tokens = 0;
      CompSeconds comp;
      for (const SequencePlacement& p : placements_[i]) {
        if (p.block() != block) continue;
        tokens += p.token_count;
        const CompSeconds one = cost_.Comp(p.token_count, p.degree);
        comp.linear += one.linear;
        comp.attention += one.attention;
        for (int32_t d = block.first_rank / cp_size;
             d <= (block.first_rank + block.degree - 1) / cp_size; ++d) {
          ++sequences[static_cast<size_t>(d)];
          active_[i][static_cast<size_t>(d)] = true;
        }
      }
      if (tokens == 0) continue;
      for (int32_t r = 0; r < block.degree; ++r) {
        RankLoad& of = load[static_cast<size_t>(block.first_rank + r)];
        CompSeconds& sum = block.degree == 1 ? of.local : of.sharded;
        sum.linear += comp.linear;
        sum.attention += comp.attention;
        of.exchange += cost_.Exchange(block, tokens);
        of.tokens += BlockRows(tokens, block.degree, r);
        if (block.degree > 1) {
          gathered[static_cast<size_t>(block.first_rank + r)] += tokens;
        }
      }
    }
    busy_[i] = 0;
    seconds_[i].fill(0);
    for (size_t r = 0; r < ranks_; ++r) {
      if (!job_.FitsRank(load[r].tokens, gathered[r])) return false;
      busy_[i] += load[r].local.total() + load[r].sharded.total();
      double& of = seconds_[i][r / static_cast<size_t>(cp_size)];
      of = std::max(of, cost_.RankSeconds(load[r]));
    }
    return *std::max_element(sequences.begin(), sequences.end()) <=
           job_.max_sequences_per_micro_batch();
  }

  // No completion of the placements so far takes less.
  double Bound(size_t next, size_t used) const {
    const double overhead = job_.cost().seconds_per_micro_batch;
    const bool uniform = job_.parallelism().uniform_micro_batch_count;
    const auto dp_size = static_cast<size_t>(job_.pool().dp_size);
    double slowest = 0;
    double busy = 0;
    double overheads = 0;
    for (size_t i = 0; i < used; ++i) busy += busy_[i];
    for (size_t d = 0; d < dp_size; ++d) {
      double ready = 0;
      for (size_t i = 0; i < used; ++i) {
        if (active_[i][d] || uniform) {
          ready += overhead + seconds_[i][d];
          overheads += overhead;
        }
      }
      slowest = std::max(slowest, ready);
    }
    return std::max(slowest,
                    (busy + work_left_[next]) / static_cast<double>(ranks_) +
                        overheads / static_cast<double>(dp_size));
  }

  // All sequences are placed: the micro-batches in their best order.
  void Finish(size_t used) {
    std::array<size_t, kMost> at{};
    std::iota(at.begin(), at.begin() + used, size_t{0});
    do {
      StepClock clock(job_, cost_);
      for (size_t i = 0; i < used; ++i) clock.Run(placements_[at[i]]);
      best_ = std::min(best_, clock.seconds());
    } while (job_.pool().dp_size > 1 &&
             std::next_permutation(at.begin(), at.begin() + used));
  }

  // `next`: index into order_; `used`: micro-batches in use; `from`: first
  // choice of an equally long sequence's successor, so that they are not
  // permuted.
  void Place(size_t next, size_t used, size_t from) {
    if (nodes_left_ < 0) return;
    if (next == order_.size()) return Finish(used);
    const size_t k = order_[next];
    const auto tokens = static_cast<int32_t>(lengths_[k]);
    const size_t choices = blocks_.size() * std::min(used + 1, kMost);
    for (size_t choice = from; choice < choices; ++choice) {
      if (--nodes_left_ < 0) return;
      const size_t i = choice / blocks_.size();
      const Block& block = blocks_[choice % blocks_.size()];
      placements_[i].push_back(
          {static_cast<int32_t>(k), tokens, block.first_rank, block.degree});
      const size_t now = std::max(used, i + 1);
      if (Measure(i) && Bound(next + 1, now) < best_ * (1 - 1e-12)) {
        const bool same_next =
            next + 1 < order_.size() && lengths_[order_[next + 1]] == tokens;
        Place(next + 1, now, same_next ? choice : 0);
      }
      placements_[i].pop_back();
      if (i < used) {
        Measure(i);
      }
    }
  }

  const Job& job_;
  const CostModel cost_;
  const std::span<const int64_t> lengths_;
  const size_t ranks_;
  std::vector<Block> blocks_;
  std::vector<size_t> order_;
  std::vector<double> work_left_;
  double best_;
  int64_t nodes_left_;
  // Per micro-batch.
  std::array<std::vector<SequencePlacement>, kMost> placements_;
  std::array<double, kMost> busy_{};
  std::array<std::array<double, kMost>, kMost> seconds_{};  // per DP rank
  std::array<std::array<bool, kMost>, kMost> active_{};     // per DP rank
};

}  // namespace

std::optional<double> ExactOptimum(const Job& job,
                                   std::span<const int64_t> lengths,
                                   double known, int64_t most_nodes) {
  return Search(job, lengths, known, most_nodes).Run();
}

JobSpec RandomFourRanks(Random& random) {
  JobSpec spec = RandomSpec(random);
  ParallelismSpec parallelism = spec.parallelism;
  parallelism.dp_size = random.Pick({1, 2, 4});
  parallelism.cp_size = 4 / parallelism.dp_size;
  parallelism.ranks_per_node = random.Pick({0, 1, 2});
  const OverlapScope overlap = spec.cost.overlap_scope;
  switch (random.Between(0, 2)) {
    case 0:
      spec.cost.intra_node.table.clear();
      if (spec.cost.inter_node) spec.cost.inter_node->table.clear();
      break;
    case 1:
      spec = PaperSpec();
      break;
    default:
      spec = UnitSpec(1, 1, random.Between(5, 200));
      spec.cost.seconds_per_micro_batch = random.Pick({0.0, 100.0, 10000.0});
  }
  spec.cost.overlap_scope = overlap;
  spec.parallelism = parallelism;
  return spec;
}

std::vector<int64_t> FewLengths(Random& random, const Job& job, int64_t most) {
  if (random.Chance(0.4)) return RandomLengths(random, job, most);
  const int64_t longest = job.longest_sequence();
  const int64_t top =
      random.Pick<int64_t>({longest, std::min(job.bucket_size(), longest),
                            std::min(2 * job.bucket_size(), longest)});
  std::vector<int64_t> lengths(static_cast<size_t>(random.Between(1, most)));
  for (int64_t& length : lengths) length = random.Between(1, top);
  return lengths;
}

}  // namespace skrull::testing
