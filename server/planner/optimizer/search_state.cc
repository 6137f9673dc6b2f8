#include "skrull/planner/optimizer/search_state.h"

#include <algorithm>

namespace skrull {
namespace {

constexpr int32_t kNone = -1;

double Busy(const RankLoad& load) {
  return load.local.total() + load.sharded.total();
}

}  // namespace

SearchState::SearchState(const Job& job, const CostModel& cost,
                         std::span<const int64_t> lengths,
                         int32_t first_dp_rank, int32_t dp_ranks)
    : job_(job),
      cost_(cost),
      lengths_(lengths),
      first_rank_(first_dp_rank * job.pool().cp_size),
      ranks_(dp_ranks * job.pool().cp_size),
      cap_matters_(std::ssize(lengths) > job.max_sequences_per_micro_batch()),
      spots_(lengths.size()),
      next_(lengths.size(), kNone),
      previous_(lengths.size(), kNone) {
  const BlockScope scope = job.parallelism().block_scope;
  for (const int32_t degree : AllowedDegrees(scope, job.pool())) {
    Level level{.degree = degree,
                .longest = job.LongestOnDegree(degree),
                .blocks = AllowedBlocks(scope, job.pool(), degree),
                .block_of = {}};
    std::erase_if(level.blocks, [&](const Block& block) {
      return block.first_rank < first_rank_ ||
             block.first_rank + block.degree > first_rank_ + ranks_;
    });
    if (level.blocks.empty()) continue;
    level.block_of.assign(static_cast<size_t>(ranks_), kNone);
    for (int32_t b = 0; b < std::ssize(level.blocks); ++b) {
      const Block& block = level.blocks[static_cast<size_t>(b)];
      std::fill_n(level.block_of.begin() + (block.first_rank - first_rank_),
                  block.degree, b);
    }
    levels_.push_back(std::move(level));
  }
}

void SearchState::Reset(int32_t micro_batches) {
  micro_batches_ = micro_batches;
  while (std::ssize(state_) < micro_batches) {
    MicroBatch fresh{
        .slots = std::vector<Slot>(static_cast<size_t>(ranks_)),
        .levels = {},
        .sequences = std::vector<int64_t>(
            static_cast<size_t>(ranks_ / job_.pool().cp_size)),
        .quickest = std::vector<int32_t>(levels_.size()),
        .least_busy = TournamentTree<double, std::less<>>(ranks_, 0.0),
        .fewest_tokens = TournamentTree<int64_t, std::less<>>(ranks_, 0)};
    for (const Level& level : levels_) {
      fresh.levels.emplace_back(level.blocks.size());
    }
    state_.push_back(std::move(fresh));
  }
  for (int32_t i = 0; i < micro_batches; ++i) {
    MicroBatch& mb = micro_batch(i);
    std::fill(mb.slots.begin(), mb.slots.end(), Slot{});
    for (std::vector<BlockState>& level : mb.levels) {
      std::fill(level.begin(), level.end(), BlockState{});
    }
    std::fill(mb.sequences.begin(), mb.sequences.end(), int64_t{0});
    std::fill(mb.quickest.begin(), mb.quickest.end(), 0);
    mb.stale = false;
    mb.trees_stale = false;
    mb.least_busy.Reset(0.0);
    mb.fewest_tokens.Reset(0);
  }
  std::fill(spots_.begin(), spots_.end(), Spot{});
}

int64_t SearchState::RowsGained(const Spot& spot, int64_t from,
                                int64_t to) const {
  const int32_t degree = level(spot.degree).degree;
  return MaxBlockRows(to, degree) - MaxBlockRows(from, degree);
}

bool SearchState::CapAllows(const Spot& spot) const {
  if (!cap_matters_) return true;
  const std::vector<int64_t>& held = micro_batch(spot.micro_batch).sequences;
  const Block block = LocalBlockOf(spot);
  const int32_t last = (block.first_rank + block.degree - 1) / cp_size();
  for (int32_t d = block.first_rank / cp_size(); d <= last; ++d) {
    if (held[static_cast<size_t>(d)] >= job_.max_sequences_per_micro_batch()) {
      return false;
    }
  }
  return true;
}

double SearchState::Try(int32_t sequence, const Spot& spot) const {
  const Block block = BlockOf(spot);
  const int64_t tokens = length(sequence);
  if (!CapAllows(spot)) return kDoesNotFit;
  const CompSeconds comp = cost_.Comp(tokens, block.degree);
  const Slot* slot =
      &micro_batch(spot.micro_batch)
           .slots[static_cast<size_t>(block.first_rank - first_rank_)];
  if (block.degree == 1) {
    if (!job_.FitsRank(slot->load.tokens + tokens, slot->gathered)) {
      return kDoesNotFit;
    }
    RankLoad load = slot->load;
    load.local.Add(comp);
    return cost_.RankSeconds(load);
  }
  const int64_t held = block_state(spot).tokens;
  const int64_t rows = RowsGained(spot, held, held + tokens);
  const double exchange =
      cost_.Exchange(block, held + tokens) - cost_.Exchange(block, held);
  double slowest = 0;
  for (int32_t r = 0; r < block.degree; ++r, ++slot) {
    if (!job_.FitsRank(slot->load.tokens + rows, slot->gathered + tokens)) {
      return kDoesNotFit;
    }
    RankLoad load = slot->load;
    load.sharded.Add(comp);
    load.exchange += exchange;
    slowest = std::max(slowest, cost_.RankSeconds(load));
  }
  return slowest;
}

double SearchState::TrySwap(const Spot& spot, int32_t in, int32_t out) const {
  const Slot& slot =
      micro_batch(spot.micro_batch).slots[static_cast<size_t>(spot.block)];
  RankLoad load = slot.load;
  load.tokens += length(in);
  load.local.Add(cost_.Comp(length(in), 1));
  if (out != kNone) {
    load.tokens -= length(out);
    load.local.Add(cost_.Comp(length(out), 1), -1);
  }
  return job_.FitsRank(load.tokens, slot.gathered) ? cost_.RankSeconds(load)
                                                   : kDoesNotFit;
}

void SearchState::Apply(int32_t sequence, const Spot& spot, int sign) {
  const Block block = BlockOf(spot);
  const int64_t tokens = length(sequence);
  const CompSeconds comp = cost_.Comp(tokens, block.degree);
  MicroBatch& mb = micro_batch(spot.micro_batch);
  BlockState& state = block_state(spot);
  const int64_t before = state.tokens;
  state.tokens += sign * tokens;

  const bool local = block.degree == 1;
  const int64_t rows =
      local ? sign * tokens : RowsGained(spot, before, state.tokens);
  const double exchange = local ? 0
                                : cost_.Exchange(block, state.tokens) -
                                      cost_.Exchange(block, before);
  const int32_t first = block.first_rank - first_rank_;
  for (int32_t rank = first; rank < first + block.degree; ++rank) {
    Slot& slot = mb.slots[static_cast<size_t>(rank)];
    slot.load.tokens += rows;
    if (local) {
      slot.load.local.Add(comp, sign);
    } else {
      slot.load.sharded.Add(comp, sign);
      slot.load.exchange += exchange;
      slot.gathered += sign * tokens;
    }
    if (sign < 0) continue;
    const double seconds = cost_.RankSeconds(slot.load);
    for (size_t i = 1; i < levels_.size(); ++i) {
      const int32_t b = levels_[i].block_of[static_cast<size_t>(rank)];
      if (b == kNone) continue;
      Slow(mb, i, b, seconds);
      BlockState& around = mb.levels[i][static_cast<size_t>(b)];
      around.fullest = std::max(around.fullest, slot.load.tokens);
      around.gathered = std::max(around.gathered, slot.gathered);
    }
  }
  if (sign < 0) mb.stale = true;
  if (local && !mb.trees_stale) {
    const RankLoad& load = mb.slots[static_cast<size_t>(first)].load;
    mb.least_busy.Set(first, Busy(load));
    mb.fewest_tokens.Set(first, load.tokens);
  } else {
    mb.trees_stale = true;
  }
  if (cap_matters_) {
    const int32_t cp_size = job_.pool().cp_size;
    const int32_t last = (first + block.degree - 1) / cp_size;
    for (int32_t d = first / cp_size; d <= last; ++d) {
      mb.sequences[static_cast<size_t>(d)] += sign;
    }
  }
}

void SearchState::Add(int32_t sequence, const Spot& spot) {
  Apply(sequence, spot, 1);
  const auto k = static_cast<size_t>(sequence);
  int32_t& head = block_state(spot).head;
  next_[k] = head;
  previous_[k] = kNone;
  if (head != kNone) previous_[static_cast<size_t>(head)] = sequence;
  head = sequence;
  spots_[k] = spot;
}

void SearchState::Remove(int32_t sequence) {
  const auto k = static_cast<size_t>(sequence);
  const Spot spot = spots_[k];
  Apply(sequence, spot, -1);
  if (previous_[k] == kNone) {
    block_state(spot).head = next_[k];
  } else {
    next_[static_cast<size_t>(previous_[k])] = next_[k];
  }
  if (next_[k] != kNone)
    previous_[static_cast<size_t>(next_[k])] = previous_[k];
  spots_[k] = Spot{};
}

void SearchState::Refresh(MicroBatch& mb) {
  if (!mb.stale) return;
  mb.stale = false;
  std::fill(mb.quickest.begin(), mb.quickest.end(), kNone);
  for (size_t i = 1; i < levels_.size(); ++i) {
    for (BlockState& state : mb.levels[i]) {
      state.slowest = 0;
      state.fullest = 0;
      state.gathered = 0;
    }
  }
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const Slot& slot = mb.slots[static_cast<size_t>(rank)];
    const double seconds = cost_.RankSeconds(slot.load);
    for (size_t i = 1; i < levels_.size(); ++i) {
      const int32_t b = levels_[i].block_of[static_cast<size_t>(rank)];
      if (b == kNone) continue;
      BlockState& around = mb.levels[i][static_cast<size_t>(b)];
      around.slowest = std::max(around.slowest, seconds);
      around.fullest = std::max(around.fullest, slot.load.tokens);
      around.gathered = std::max(around.gathered, slot.gathered);
    }
  }
}

void SearchState::Slow(MicroBatch& mb, size_t degree, int32_t block,
                       double seconds) {
  double& slowest = mb.levels[degree][static_cast<size_t>(block)].slowest;
  if (seconds <= slowest) return;
  slowest = seconds;
  if (mb.quickest[degree] == block) mb.quickest[degree] = kNone;
}

int32_t SearchState::Quickest(MicroBatch& mb, int32_t degree) {
  int32_t& quickest = mb.quickest[static_cast<size_t>(degree)];
  if (quickest != kNone) return quickest;
  const std::vector<BlockState>& states =
      mb.levels[static_cast<size_t>(degree)];
  const auto least =
      std::min_element(states.begin(), states.end(),
                       [](const BlockState& a, const BlockState& b) {
                         return a.slowest < b.slowest;
                       });
  quickest = static_cast<int32_t>(least - states.begin());
  return quickest;
}

bool SearchState::HasRoom(int64_t tokens, const Spot& spot) const {
  const BlockState& state = block_state(spot);
  const int64_t rows = RowsGained(spot, state.tokens, state.tokens + tokens);
  return job_.FitsRank(state.fullest + rows, state.gathered + tokens) &&
         CapAllows(spot);
}

void SearchState::RefreshTrees(MicroBatch& mb) {
  if (!mb.trees_stale) return;
  mb.trees_stale = false;
  mb.least_busy.Assign([&](int32_t rank) {
    return Busy(mb.slots[static_cast<size_t>(rank)].load);
  });
  mb.fewest_tokens.Assign([&](int32_t rank) {
    return mb.slots[static_cast<size_t>(rank)].load.tokens;
  });
}

Spot SearchState::BestSpot(int32_t sequence, int32_t micro_batch_index,
                           int32_t degree) {
  MicroBatch& mb = micro_batch(micro_batch_index);
  const int64_t tokens = length(sequence);
  if (degree == 0) {
    RefreshTrees(mb);
    for (const int32_t rank : {mb.least_busy.Best(), mb.fewest_tokens.Best()}) {
      const Slot& slot = mb.slots[static_cast<size_t>(rank)];
      if (job_.FitsRank(slot.load.tokens + tokens, slot.gathered) &&
          CapAllows({micro_batch_index, 0, rank})) {
        return {micro_batch_index, 0, rank};
      }
    }
    return {};
  }
  Refresh(mb);
  const Spot quickest{micro_batch_index, degree, Quickest(mb, degree)};
  if (HasRoom(tokens, quickest)) return quickest;
  const std::vector<BlockState>& states =
      mb.levels[static_cast<size_t>(degree)];
  const int64_t room = job_.bucket_size() - tokens / level(degree).degree;
  Spot best;
  double least = std::numeric_limits<double>::infinity();
  for (int32_t b = 0; b < std::ssize(states); ++b) {
    const BlockState& state = states[static_cast<size_t>(b)];
    if (state.slowest >= least || state.fullest > room) continue;
    const Spot spot{micro_batch_index, degree, b};
    if (!HasRoom(tokens, spot)) continue;
    least = state.slowest;
    best = spot;
  }
  return best;
}

double SearchState::QuickestSeconds(int32_t micro_batch_index, int32_t degree) {
  MicroBatch& mb = micro_batch(micro_batch_index);
  Refresh(mb);
  return mb
      .levels[static_cast<size_t>(degree)]
             [static_cast<size_t>(Quickest(mb, degree))]
      .slowest;
}

double SearchState::SpotSeconds(const Spot& spot) const {
  return spot.degree == 0 ? SlotSeconds(spot.micro_batch, spot.block)
                          : block_state(spot).slowest;
}

int32_t SearchState::SlowestRank(int32_t micro_batch_index) const {
  int32_t slowest = 0;
  double most = -1;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const double seconds = SlotSeconds(micro_batch_index, rank);
    if (seconds > most) {
      most = seconds;
      slowest = rank;
    }
  }
  return slowest;
}

Spot SearchState::SpotAround(int32_t micro_batch_index, int32_t degree,
                             int32_t rank) const {
  const int32_t b = level(degree).block_of[static_cast<size_t>(rank)];
  if (b == kNone) return {};
  return {micro_batch_index, degree, b};
}

void SearchState::Export(std::span<const int32_t> names,
                         std::vector<MicroBatchPlan>* out) const {
  if (std::ssize(*out) < micro_batches_) {
    out->resize(static_cast<size_t>(micro_batches_));
  }
  for (int32_t k = 0; k < std::ssize(spots_); ++k) {
    const Block block = BlockOf(spot(k));
    (*out)[static_cast<size_t>(spot(k).micro_batch)].placements.push_back(
        {.sequence = names[static_cast<size_t>(k)],
         .token_count = static_cast<int32_t>(length(k)),
         .first_rank = block.first_rank,
         .degree = block.degree});
  }
}

}  // namespace skrull
