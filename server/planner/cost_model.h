// What work costs, in seconds: the objective every policy is judged by.
//
// The formulas are the contract's (docs/concepts.md, "Cost"), from the Skrull
// paper's Eq. 2 and 8 and appendix. Pure; immutable once made; safe to share
// between threads.
#ifndef SKRULL_SERVER_PLANNER_COST_MODEL_H_
#define SKRULL_SERVER_PLANNER_COST_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/plan.h"

namespace skrull {

// Seconds one rank of a block spends on one sequence, in two parts.
struct CompSeconds {
  double linear = 0;
  double attention = 0;

  double total() const { return linear + attention; }
  // Adds `other` so many times; -1 takes it away.
  void Add(const CompSeconds& other, int times = 1) {
    linear += times * other.linear;
    attention += times * other.attention;
  }
};

// What one rank does in one micro-batch.
struct RankLoad {
  CompSeconds local;
  CompSeconds sharded;  // its shares of sharded sequences
  double exchange = 0;  // seconds of K/V exchange
  int64_t tokens = 0;   // rows
};

class CostModel {
 public:
  // `job` must outlive the model.
  explicit CostModel(const Job& job);

  // comp(S, g): seconds each rank of a block of `degree` ranks computes for a
  // sequence of `tokens`. REQUIRES: tokens >= 1, degree >= 1. O(1).
  CompSeconds Comp(int64_t tokens, int32_t degree) const {
    const auto s = static_cast<double>(tokens);
    const auto g = static_cast<double>(degree);
    const double unit = seconds_per_unit_ / g;
    // attention / eff(S / g) with eff(x) = x / (x + half) is
    // attention_flops * S * (S + g * half).
    return {.linear = unit * (job_.linear_flops() * s),
            .attention = unit * (job_.attention_flops() * s *
                                 (s + g * job_.cost().efficiency_half_tokens))};
  }

  // Work of a whole sequence on one rank in units of FLOPs of a forward pass
  // (efficiency of short segments included): what heuristics balance. It does
  // not depend on any measured rate, so scaling all costs changes no placement.
  double Work(int64_t tokens) const;

  // Seconds a rank of `block` spends in K/V exchange of one micro-batch in
  // which the block's sequences hold `tokens` together; 0 for degree 1 or
  // tokens 0. REQUIRES: the block lies in the pool. O(log table).
  double Exchange(Block block, int64_t tokens) const;

  // Time_rank: seconds of a rank with this load, by the job's overlap scope,
  // the micro-batch's overhead left out. O(1).
  double RankSeconds(const RankLoad& load) const {
    if (overlap_layer_) {
      return std::max(load.exchange, load.local.total()) + load.sharded.total();
    }
    return load.local.linear + load.sharded.linear +
           std::max(load.exchange, load.local.attention) +
           load.sharded.attention;
  }

  // A value no allowed block of `degree` can beat in exchanging `tokens` or
  // more. REQUIRES: the job's scope allows the degree. O(table).
  double MinExchange(int32_t degree, int64_t tokens) const;

  // Exchanging any number of tokens on an allowed block of `degree` takes at
  // least this for each. REQUIRES: the job's scope allows the degree. O(table).
  double MinExchangePerToken(int32_t degree) const;

 private:
  // Which links the allowed blocks of one degree run over.
  struct DegreeLinks {
    int32_t degree;
    bool intra_node;
    bool inter_node;
  };

  bool IsIntraNode(Block block) const;

  const Job& job_;
  const bool overlap_layer_;
  double seconds_per_unit_;         // seconds_per_flop * pass_multiplier
  double collectives_;              // layer_count * collectives_per_layer
  std::vector<DegreeLinks> links_;  // of all allowed degrees above 1
};

// max / mean - 1; 0 if the values sum to nothing. REQUIRES: none is negative.
double Imbalance(std::span<const double> values);

// Time of one micro-batch and what it is made of.
struct MicroBatchTime {
  double seconds = 0;  // overhead + slowest rank; 0 if nothing runs
  int64_t max_rank_tokens = 0;
};

// DP ranks that run one micro-batch together: consecutive ones, since blocks
// are.
struct Component {
  int32_t first_dp_rank = 0;
  int32_t dp_rank_count = 0;
  double seconds = 0;  // overhead + slowest rank
};

// Time of a step, evaluated micro-batch by micro-batch in order. Reusable
// scratch inside: not thread-safe, one per thread.
class StepClock {
 public:
  // `job` and `cost` must outlive the clock.
  StepClock(const Job& job, const CostModel& cost);

  // Runs one micro-batch on all DP ranks. DP ranks joined by a block start
  // together, when the last of them is ready, and end together. REQUIRES:
  // blocks lie in the pool, token counts >= 1. O(placements + ranks).
  MicroBatchTime Run(std::span<const SequencePlacement> placements);

  // Of the micro-batch run last: what each rank did in it, and when a DP rank
  // did. A DP rank that took no part has start == end. REQUIRES: Run() was
  // called; dp_rank is in the pool.
  struct Slot {
    double start = 0;  // when the last member of its component was ready
    double end = 0;    // when the slowest rank of its component is done
  };
  std::span<const RankLoad> loads() const { return load_; }
  Slot slot(int32_t dp_rank) const;

  // Who ran the last micro-batch, and how long, by DP rank; DP ranks that took
  // no time in it are in none.
  std::span<const Component> components() const { return components_; }

  // The latest ready time so far: predicted_seconds of the step.
  double seconds() const;
  // The slowest rank of the last micro-batch of a DP rank that is ready last,
  // the lowest of those; 0 before anything ran.
  int32_t last_rank() const;
  // max / mean - 1 over DP ranks' ready times; 0 before anything ran.
  double dp_imbalance() const;
  // max / mean - 1 over ranks' compute seconds; 0 before anything ran.
  double rank_imbalance() const;

 private:
  struct BlockLoad {
    Block block;
    CompSeconds sharded;
    int64_t tokens = 0;
  };

  const Job& job_;
  const CostModel& cost_;
  std::vector<double> ready_;         // per DP rank
  std::vector<int32_t> last_rank_;    // per DP rank: slowest in its component
  std::vector<double> rank_compute_;  // per rank, all micro-batches
  std::vector<RankLoad> load_;        // per rank, this micro-batch
  std::vector<BlockLoad> blocks_;     // this micro-batch's
  // Per DP rank, this micro-batch: lowest DP rank joined with it; whether it
  // has a placement; and, at the index of a component's lowest DP rank, when
  // the component starts, its slowest rank's seconds and that rank.
  std::vector<int32_t> component_;
  std::vector<char> active_;
  std::vector<double> start_;
  std::vector<double> slowest_;
  std::vector<int32_t> slowest_rank_;
  std::vector<Component> components_;  // of this micro-batch
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_COST_MODEL_H_
