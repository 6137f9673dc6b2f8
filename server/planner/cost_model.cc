#include "skrull/planner/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace skrull {
namespace {

double LinkSeconds(const LinkCost& link, double bytes) {
  if (link.table.empty()) {
    return link.seconds_per_collective + bytes * link.seconds_per_byte;
  }
  const std::vector<LinkTablePoint>& table = link.table;
  const auto at = [&](size_t i) { return static_cast<double>(table[i].bytes); };
  if (bytes <= at(0) || table.size() == 1) return table[0].seconds;
  // The segment that holds `bytes`, or the last one for larger sizes.
  const auto next = std::upper_bound(table.begin() + 1, table.end() - 1, bytes,
                                     [](double b, const LinkTablePoint& p) {
                                       return b < static_cast<double>(p.bytes);
                                     });
  const auto i = static_cast<size_t>(next - table.begin());
  const double slope =
      (table[i].seconds - table[i - 1].seconds) / (at(i) - at(i - 1));
  return table[i - 1].seconds + (bytes - at(i - 1)) * slope;
}

// The least LinkSeconds of any size >= bytes: equal to it unless a measured
// table dips.
double MinLinkSeconds(const LinkCost& link, double bytes) {
  double least = LinkSeconds(link, bytes);
  for (const LinkTablePoint& point : link.table) {
    if (static_cast<double>(point.bytes) > bytes) {
      least = std::min(least, point.seconds);
    }
  }
  return least;
}

// The least LinkSeconds(bytes) / bytes of any size.
double MinLinkSecondsPerByte(const LinkCost& link) {
  const std::vector<LinkTablePoint>& table = link.table;
  if (table.empty()) return link.seconds_per_byte;
  if (table.size() == 1) return 0;  // flat for ever
  // Between points the ratio is monotone, and far out it is the last slope.
  const LinkTablePoint& a = table[table.size() - 2];
  const LinkTablePoint& b = table.back();
  double least =
      (b.seconds - a.seconds) / static_cast<double>(b.bytes - a.bytes);
  for (const LinkTablePoint& point : table) {
    if (point.bytes == 0) continue;
    least = std::min(least, point.seconds / static_cast<double>(point.bytes));
  }
  return least;
}

}  // namespace

double Imbalance(std::span<const double> values) {
  double sum = 0;
  double most = 0;
  for (const double value : values) {
    sum += value;
    most = std::max(most, value);
  }
  if (sum <= 0) return 0;
  return most / (sum / static_cast<double>(values.size())) - 1;
}

CostModel::CostModel(const Job& job)
    : job_(job),
      overlap_layer_(job.cost().overlap_scope == OverlapScope::kLayer),
      seconds_per_unit_(job.cost().seconds_per_flop *
                        job.cost().pass_multiplier),
      collectives_(static_cast<double>(job.layer_count()) *
                   job.cost().collectives_per_layer) {
  const BlockScope scope = job.parallelism().block_scope;
  for (const int32_t degree : AllowedDegrees(scope, job.pool())) {
    if (degree == 1) continue;
    DegreeLinks links{degree, false, false};
    for (const Block& block : AllowedBlocks(scope, job.pool(), degree)) {
      (IsIntraNode(block) ? links.intra_node : links.inter_node) = true;
    }
    links_.push_back(links);
  }
}

double CostModel::Work(int64_t tokens) const {
  const auto s = static_cast<double>(tokens);
  return job_.linear_flops() * s +
         job_.attention_flops() * s * (s + job_.cost().efficiency_half_tokens);
}

bool CostModel::IsIntraNode(Block block) const {
  const int32_t per_node = job_.parallelism().ranks_per_node;
  return per_node == 0 || block.first_rank / per_node ==
                              (block.first_rank + block.degree - 1) / per_node;
}

double CostModel::Exchange(Block block, int64_t tokens) const {
  if (block.degree == 1 || tokens == 0) return 0;
  const double bytes = static_cast<double>(tokens) * job_.kv_bytes_per_token();
  return collectives_ * LinkSeconds(IsIntraNode(block) ? job_.cost().intra_node
                                                       : job_.inter_node(),
                                    bytes);
}

double CostModel::MinExchange(int32_t degree, int64_t tokens) const {
  if (degree == 1 || tokens == 0) return 0;
  const double bytes = static_cast<double>(tokens) * job_.kv_bytes_per_token();
  double least = std::numeric_limits<double>::infinity();
  for (const DegreeLinks& links : links_) {
    if (links.degree != degree) continue;
    if (links.intra_node) {
      least = MinLinkSeconds(job_.cost().intra_node, bytes);
    }
    if (links.inter_node) {
      least = std::min(least, MinLinkSeconds(job_.inter_node(), bytes));
    }
  }
  return collectives_ * least;
}

double CostModel::MinExchangePerToken(int32_t degree) const {
  if (degree == 1) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const DegreeLinks& links : links_) {
    if (links.degree != degree) continue;
    if (links.intra_node) {
      least = MinLinkSecondsPerByte(job_.cost().intra_node);
    }
    if (links.inter_node) {
      least = std::min(least, MinLinkSecondsPerByte(job_.inter_node()));
    }
  }
  return collectives_ * job_.kv_bytes_per_token() * least;
}

StepClock::StepClock(const Job& job, const CostModel& cost)
    : job_(job),
      cost_(cost),
      ready_(static_cast<size_t>(job.pool().dp_size), 0.0),
      last_rank_(ready_.size(), 0),
      rank_compute_(static_cast<size_t>(job.pool().ranks()), 0.0),
      load_(rank_compute_.size()),
      component_(ready_.size()),
      active_(ready_.size()),
      start_(ready_.size()),
      slowest_(ready_.size()),
      slowest_rank_(ready_.size()) {}

MicroBatchTime StepClock::Run(std::span<const SequencePlacement> placements) {
  const int32_t cp_size = job_.pool().cp_size;
  const auto group_of = [&](int32_t rank) {
    return static_cast<size_t>(rank / cp_size);
  };
  std::fill(load_.begin(), load_.end(), RankLoad{});
  std::fill(active_.begin(), active_.end(), char{0});
  std::fill(start_.begin(), start_.end(), 0.0);
  std::fill(slowest_.begin(), slowest_.end(), 0.0);
  for (size_t d = 0; d < component_.size(); ++d) {
    component_[d] = static_cast<int32_t>(d);
    slowest_rank_[d] = static_cast<int32_t>(d) * cp_size;
  }

  // Sharded sequences are summed per block, then each block is charged to its
  // ranks once.
  blocks_.clear();
  for (const SequencePlacement& p : placements) {
    if (p.degree != 1) {
      blocks_.push_back({.block = p.block(),
                         .sharded = cost_.Comp(p.token_count, p.degree),
                         .tokens = p.token_count});
      continue;
    }
    RankLoad& load = load_[static_cast<size_t>(p.first_rank)];
    load.local.Add(cost_.Comp(p.token_count, 1));
    load.tokens += p.token_count;
    active_[group_of(p.first_rank)] = 1;
  }
  std::stable_sort(
      blocks_.begin(), blocks_.end(),
      [](const BlockLoad& a, const BlockLoad& b) { return a.block < b.block; });
  for (size_t i = 0; i < blocks_.size();) {
    BlockLoad sum = blocks_[i];
    for (++i; i < blocks_.size() && blocks_[i].block == sum.block; ++i) {
      sum.sharded.Add(blocks_[i].sharded);
      sum.tokens += blocks_[i].tokens;
    }
    const double exchange = cost_.Exchange(sum.block, sum.tokens);
    for (int32_t r = 0; r < sum.block.degree; ++r) {
      RankLoad& load = load_[static_cast<size_t>(sum.block.first_rank + r)];
      load.sharded.Add(sum.sharded);
      load.exchange += exchange;
      load.tokens += BlockRows(sum.tokens, sum.block.degree, r);
    }
    // Join the DP ranks the block touches. They are consecutive.
    const size_t first = group_of(sum.block.first_rank);
    const size_t last = group_of(sum.block.first_rank + sum.block.degree - 1);
    for (size_t d = first; d <= last; ++d) {
      active_[d] = 1;
      component_[d] = std::min(component_[d], static_cast<int32_t>(first));
    }
  }
  // Blocks came in order of their first rank, so a label always points to a DP
  // rank at or before it and one ascending pass resolves chains.
  for (size_t d = 0; d < component_.size(); ++d) {
    component_[d] = component_[static_cast<size_t>(component_[d])];
  }

  MicroBatchTime time;
  const bool uniform = job_.parallelism().uniform_micro_batch_count;
  const double overhead = job_.cost().seconds_per_micro_batch;
  for (size_t r = 0; r < load_.size(); ++r) {
    const auto label =
        static_cast<size_t>(component_[group_of(static_cast<int32_t>(r))]);
    const RankLoad& load = load_[r];
    const double seconds = cost_.RankSeconds(load);
    if (seconds > slowest_[label]) {
      slowest_[label] = seconds;
      slowest_rank_[label] = static_cast<int32_t>(r);
    }
    rank_compute_[r] += load.local.total() + load.sharded.total();
    time.max_rank_tokens = std::max(time.max_rank_tokens, load.tokens);
  }
  for (size_t d = 0; d < ready_.size(); ++d) {
    const auto label = static_cast<size_t>(component_[d]);
    start_[label] = std::max(start_[label], ready_[d]);
  }
  components_.clear();
  for (size_t d = 0; d < ready_.size(); ++d) {
    if (!active_[d] && !uniform) continue;
    const auto label = static_cast<size_t>(component_[d]);
    const double seconds = overhead + slowest_[label];
    if (label == d) components_.push_back({component_[d], 0, seconds});
    ++components_.back().dp_rank_count;
    ready_[d] = start_[label] + seconds;
    last_rank_[d] = slowest_rank_[label];
    time.seconds = std::max(time.seconds, seconds);
  }
  return time;
}

StepClock::Slot StepClock::slot(int32_t dp_rank) const {
  const auto d = static_cast<size_t>(dp_rank);
  if (!active_[d] && !job_.parallelism().uniform_micro_batch_count) {
    return {.start = ready_[d], .end = ready_[d]};
  }
  return {.start = start_[static_cast<size_t>(component_[d])],
          .end = ready_[d]};
}

double StepClock::seconds() const {
  return *std::max_element(ready_.begin(), ready_.end());
}

int32_t StepClock::last_rank() const {
  const auto last = std::max_element(ready_.begin(), ready_.end());
  return last_rank_[static_cast<size_t>(last - ready_.begin())];
}

double StepClock::dp_imbalance() const { return Imbalance(ready_); }

double StepClock::rank_imbalance() const { return Imbalance(rank_compute_); }

}  // namespace skrull
