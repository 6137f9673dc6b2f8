#include "skrull/tests/planner/naive_checker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

namespace skrull::testing {
namespace {

bool Near(double a, double b) {
  return std::isfinite(a) && std::isfinite(b) &&
         std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

double LinkSeconds(const LinkCost& link, double bytes) {
  const auto& table = link.table;
  if (table.empty()) {
    return link.seconds_per_collective + bytes * link.seconds_per_byte;
  }
  const auto x = [&](size_t i) { return static_cast<double>(table[i].bytes); };
  if (table.size() == 1 || bytes <= x(0)) return table[0].seconds;
  size_t i = 1;
  while (i + 1 < table.size() && bytes > x(i)) ++i;
  const double share = (bytes - x(i - 1)) / (x(i) - x(i - 1));
  return table[i - 1].seconds +
         share * (table[i].seconds - table[i - 1].seconds);
}

double Imbalance(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  if (sum == 0) return 0;
  return *std::max_element(values.begin(), values.end()) *
             static_cast<double>(values.size()) / sum -
         1;
}

std::vector<Block> AllBlocks(const ParallelismSpec& p) {
  std::set<Block> blocks;
  const int32_t ranks = p.dp_size * p.cp_size;
  for (int32_t r = 0; r < ranks; ++r) blocks.insert({r, 1});
  for (int32_t d = 0; d < p.dp_size; ++d) {
    blocks.insert({d * p.cp_size, p.cp_size});
  }
  if (p.block_scope != BlockScope::kGroup) {
    for (int32_t d = 0; d < p.dp_size; ++d) {
      for (int32_t size = 2; size < p.cp_size; size *= 2) {
        for (int32_t at = 0; at + size <= p.cp_size; at += size) {
          blocks.insert({d * p.cp_size + at, size});
        }
      }
    }
  }
  if (p.block_scope == BlockScope::kPool) {
    blocks.insert({0, ranks});
    for (int32_t groups = 2; groups <= p.dp_size; groups *= 2) {
      for (int32_t at = 0; at + groups <= p.dp_size; at += groups) {
        blocks.insert({at * p.cp_size, groups * p.cp_size});
      }
    }
  }
  return {blocks.begin(), blocks.end()};
}

}  // namespace

NaiveContract::NaiveContract(const JobSpec& spec)
    : spec_(spec),
      ranks_(spec.parallelism.dp_size * spec.parallelism.cp_size),
      blocks_(AllBlocks(spec.parallelism)) {
  const auto h = static_cast<double>(*spec.model.hidden_size);
  const auto layers = static_cast<double>(*spec.model.layer_count);
  const int64_t heads = spec.model.attention_head_count.value_or(1);
  const int64_t dim =
      spec.model.head_dim.value_or(*spec.model.hidden_size / heads);
  const auto h_kv =
      static_cast<double>(spec.model.kv_head_count.value_or(heads) * dim);
  double c1 = 20 * h * h + 4 * h * h_kv;
  double c2 = 4 * h;
  double c0 = 0;
  if (spec.cost.flops_formula == FlopsFormula::kExact) {
    const auto q = static_cast<double>(heads * dim);
    const auto wide = static_cast<double>(*spec.model.intermediate_size);
    c1 = 2 * (2 * h * q + 2 * h * h_kv + 3 * h * wide);
    c2 = 2 * q;
    c0 = 2 * h * static_cast<double>(*spec.model.vocab_size);
  }
  const double rate = spec.cost.seconds_per_flop * spec.cost.pass_multiplier;
  linear_ = rate * (layers * c1 + c0);
  attention_ = rate * layers * c2;
  kv_bytes_ = 2 * h_kv * spec.cost.bytes_per_element;

  const MemorySpec& m = spec.memory;
  const double bytes_per_token = m.bytes_per_token.value_or(0);
  if (m.device_bytes) {
    budget_ = static_cast<double>(*m.device_bytes) * (1 - m.reserve_fraction) -
              static_cast<double>(m.static_bytes);
  } else {
    budget_ = static_cast<double>(*m.bucket_size_tokens) * bytes_per_token;
  }
  bucket_size_ = m.bucket_size_tokens
                     ? *m.bucket_size_tokens
                     : static_cast<int64_t>(budget_ / bytes_per_token);
}

bool NaiveContract::Holds(int64_t tokens, int32_t degree) const {
  const SequencePlacement alone{0, static_cast<int32_t>(tokens), 0, degree};
  return tokens <= bucket_size_ * degree && Fits({&alone, 1});
}

bool NaiveContract::IsPlaceable(int64_t tokens) const {
  return std::any_of(blocks_.begin(), blocks_.end(),
                     [&](const Block& b) { return Holds(tokens, b.degree); });
}

std::vector<NaiveContract::RankMemory> NaiveContract::Memory(
    std::span<const SequencePlacement> placements) const {
  std::vector<RankMemory> memory(static_cast<size_t>(ranks_));
  std::map<Block, int64_t> pointer;
  for (const SequencePlacement& p : placements) {
    const int64_t g = p.degree;
    const int64_t q = p.token_count / g;
    const int64_t e = p.token_count % g;
    int64_t& rot = pointer[p.block()];
    for (int64_t r = 0; r < g; ++r) {
      RankMemory& rank = memory[static_cast<size_t>(p.first_rank + r)];
      rank.rows += q + (((r - rot) % g + g) % g < e ? 1 : 0);
      if (g > 1) rank.gathered += p.token_count;
    }
    rot = (rot + e) % g;
  }
  return memory;
}

bool NaiveContract::Fits(std::span<const SequencePlacement> placements) const {
  const MemorySpec& m = spec_.memory;
  for (const RankMemory& rank : Memory(placements)) {
    if (rank.rows > bucket_size_) return false;
    if (m.gather_bytes_per_token > 0 &&
        static_cast<double>(rank.rows) * *m.bytes_per_token +
                static_cast<double>(rank.gathered) * m.gather_bytes_per_token >
            budget_) {
      return false;
    }
  }
  const int32_t cp = spec_.parallelism.cp_size;
  for (int32_t d = 0; d < spec_.parallelism.dp_size; ++d) {
    const auto count = std::count_if(placements.begin(), placements.end(),
                                     [&](const SequencePlacement& p) {
                                       return p.first_rank < (d + 1) * cp &&
                                              p.first_rank + p.degree > d * cp;
                                     });
    if (count > m.max_sequences_per_micro_batch) return false;
  }
  return true;
}

NaiveContract::Seconds NaiveContract::Comp(int64_t tokens,
                                           int32_t degree) const {
  const auto s = static_cast<double>(tokens);
  const double half = spec_.cost.efficiency_half_tokens;
  const double share = s / degree;
  const double efficiency = share / (share + half);
  return {linear_ * s / degree, attention_ * s * s / efficiency / degree};
}

double NaiveContract::Exchange(Block block, int64_t tokens) const {
  int32_t per_node = spec_.parallelism.ranks_per_node;
  if (per_node == 0) per_node = ranks_;
  const bool one_node = block.first_rank / per_node ==
                        (block.first_rank + block.degree - 1) / per_node;
  const LinkCost& link = one_node || !spec_.cost.inter_node
                             ? spec_.cost.intra_node
                             : *spec_.cost.inter_node;
  return static_cast<double>(*spec_.model.layer_count) *
         spec_.cost.collectives_per_layer *
         LinkSeconds(link, static_cast<double>(tokens) * kv_bytes_);
}

std::vector<double> NaiveContract::RankSeconds(
    std::span<const SequencePlacement> placements) const {
  std::vector<double> seconds;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    Seconds local;
    Seconds sharded;
    std::map<Block, int64_t> exchanged;
    for (const SequencePlacement& p : placements) {
      if (rank < p.first_rank || rank >= p.first_rank + p.degree) continue;
      const Seconds comp = Comp(p.token_count, p.degree);
      Seconds& into = p.degree == 1 ? local : sharded;
      into.linear += comp.linear;
      into.attention += comp.attention;
      if (p.degree > 1) exchanged[p.block()] += p.token_count;
    }
    double comm = 0;
    for (const auto& [block, tokens] : exchanged) {
      comm += Exchange(block, tokens);
    }
    if (spec_.cost.overlap_scope == OverlapScope::kLayer) {
      seconds.push_back(std::max(comm, local.linear + local.attention) +
                        sharded.linear + sharded.attention);
    } else {
      seconds.push_back(local.linear + sharded.linear +
                        std::max(comm, local.attention) + sharded.attention);
    }
  }
  return seconds;
}

double NaiveContract::SlowestRank(
    std::span<const SequencePlacement> placements) const {
  const std::vector<double> seconds = RankSeconds(placements);
  return *std::max_element(seconds.begin(), seconds.end());
}

double NaiveContract::MicroBatchSeconds(
    std::span<const SequencePlacement> placements) const {
  if (placements.empty() && !spec_.parallelism.uniform_micro_batch_count) {
    return 0;
  }
  return spec_.cost.seconds_per_micro_batch + SlowestRank(placements);
}

double NaiveContract::StepSeconds(
    std::span<const std::vector<SequencePlacement>> micro_batches) const {
  const int32_t dp = spec_.parallelism.dp_size;
  const int32_t cp = spec_.parallelism.cp_size;
  std::vector<double> ready(static_cast<size_t>(dp), 0.0);
  for (const auto& placements : micro_batches) {
    const std::vector<double> seconds = RankSeconds(placements);
    std::vector<int32_t> component(static_cast<size_t>(dp));
    std::iota(component.begin(), component.end(), 0);
    std::set<int32_t> busy;
    for (const SequencePlacement& p : placements) {
      const int32_t last = (p.first_rank + p.degree - 1) / cp;
      for (int32_t d = p.first_rank / cp; d <= last; ++d) {
        busy.insert(d);
        const int32_t from = component[static_cast<size_t>(d)];
        const int32_t to = component[static_cast<size_t>(p.first_rank / cp)];
        std::replace(component.begin(), component.end(), from, to);
      }
    }
    std::map<int32_t, double> start;
    std::map<int32_t, double> slowest;
    for (int32_t d = 0; d < dp; ++d) {
      const int32_t c = component[static_cast<size_t>(d)];
      start[c] = std::max(start[c], ready[static_cast<size_t>(d)]);
      for (int32_t r = d * cp; r < (d + 1) * cp; ++r) {
        slowest[c] = std::max(slowest[c], seconds[static_cast<size_t>(r)]);
      }
    }
    for (int32_t d = 0; d < dp; ++d) {
      if (!busy.contains(d) && !spec_.parallelism.uniform_micro_batch_count) {
        continue;
      }
      const int32_t c = component[static_cast<size_t>(d)];
      ready[static_cast<size_t>(d)] =
          start[c] + spec_.cost.seconds_per_micro_batch + slowest[c];
    }
  }
  return *std::max_element(ready.begin(), ready.end());
}

double NaiveContract::ContractLowerBound(
    std::span<const int64_t> lengths) const {
  const double overhead = spec_.cost.seconds_per_micro_batch;
  double work = 0;
  double longest = 0;
  int64_t tokens = 0;
  for (const int64_t length : lengths) {
    double least_work = std::numeric_limits<double>::infinity();
    double least_alone = std::numeric_limits<double>::infinity();
    for (const Block& b : blocks_) {
      if (!Holds(length, b.degree)) continue;
      const Seconds comp = Comp(length, b.degree);
      const double seconds = comp.linear + comp.attention;
      const double exchange = b.degree == 1 ? 0 : Exchange(b, length);
      least_work = std::min(least_work, b.degree * seconds);
      least_alone = std::min(least_alone, seconds + exchange);
    }
    work += least_work;
    longest = std::max(longest, least_alone);
    tokens += length;
  }
  const int64_t group = bucket_size_ * spec_.parallelism.cp_size;
  double n = static_cast<double>((tokens + group - 1) / group) /
             spec_.parallelism.dp_size;
  if (spec_.parallelism.uniform_micro_batch_count) n = std::ceil(n);
  n = std::max(1.0, n);
  return std::max(work / ranks_ + overhead * n, longest + overhead);
}

std::string NaiveContract::Problem(std::span<const int64_t> lengths,
                                   const Plan& plan) const {
  std::ostringstream out;
  std::vector<int> placed(lengths.size(), 0);
  std::set<Block> used;
  int64_t sharded = 0;
  int64_t sharded_tokens = 0;
  int64_t fullest = 0;
  std::vector<std::vector<SequencePlacement>> steps;
  std::vector<double> compute(static_cast<size_t>(ranks_), 0.0);
  for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
    const MicroBatchPlan& mb = plan.micro_batches[i];
    steps.push_back(mb.placements);
    int64_t tokens = 0;
    for (const SequencePlacement& p : mb.placements) {
      if (p.sequence < 0 || static_cast<size_t>(p.sequence) >= lengths.size() ||
          p.token_count != lengths[static_cast<size_t>(p.sequence)]) {
        out << "mb " << i << ": no such sequence " << p.sequence;
        return out.str();
      }
      ++placed[static_cast<size_t>(p.sequence)];
      tokens += p.token_count;
      if (!std::binary_search(blocks_.begin(), blocks_.end(), p.block())) {
        out << "mb " << i << ": sequence " << p.sequence << " on no block";
        return out.str();
      }
      const Seconds comp = Comp(p.token_count, p.degree);
      for (int32_t r = p.first_rank; r < p.first_rank + p.degree; ++r) {
        compute[static_cast<size_t>(r)] += comp.linear + comp.attention;
      }
      if (p.degree > 1) {
        used.insert(p.block());
        ++sharded;
        sharded_tokens += p.token_count;
      }
    }
    if (!Fits(mb.placements)) out << "mb " << i << " does not fit; ";
    int64_t most = 0;
    for (const RankMemory& m : Memory(mb.placements)) {
      most = std::max(most, m.rows);
    }
    fullest = std::max(fullest, most);
    if (mb.token_count != tokens || mb.max_rank_tokens != most ||
        !Near(mb.predicted_seconds, MicroBatchSeconds(mb.placements))) {
      out << "mb " << i << ": wrong figures; ";
    }
  }
  for (size_t k = 0; k < placed.size(); ++k) {
    if (placed[k] != 1) {
      out << "sequence " << k << " placed " << placed[k] << " times; ";
    }
  }
  if (!std::equal(plan.blocks.begin(), plan.blocks.end(), used.begin(),
                  used.end())) {
    out << "wrong block list; ";
  }
  const PlanSummary& s = plan.summary;
  if (s.sharded_sequence_count != sharded ||
      s.sharded_token_count != sharded_tokens ||
      s.micro_batch_count != static_cast<int64_t>(steps.size()) ||
      s.max_rank_tokens != fullest || s.roll_back_count < 0) {
    out << "wrong counts in the summary; ";
  }
  const double predicted = StepSeconds(steps);
  if (!Near(s.predicted_seconds, predicted)) {
    out << "predicted " << s.predicted_seconds << " != " << predicted << "; ";
  }
  if (!(s.lower_bound_seconds <= predicted * (1 + 1e-9))) {
    out << "lower bound " << s.lower_bound_seconds << " > " << predicted
        << "; ";
  }
  if (!Near(s.rank_imbalance + 1, Imbalance(compute) + 1)) {
    out << "rank imbalance " << s.rank_imbalance << "; ";
  }
  return out.str();
}

}  // namespace skrull::testing
