#include "skrull/planner/placement.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace skrull {

Placement::Placement(const Job& job, std::span<const int64_t> lengths,
                     std::span<const double> work)
    : job_(job),
      lengths_(lengths),
      work_(work),
      rank_of_(lengths.size(), kAbsent),
      head_(static_cast<size_t>(job.pool().cp_size), kEnd),
      tail_(head_.size(), kEnd),
      next_(lengths.size(), kEnd),
      most_tokens_(job.pool().cp_size, 0),
      fewest_tokens_(job.pool().cp_size, 0),
      least_work_(job.pool().cp_size, 0.0) {}

void Placement::Clear() {
  for (const int32_t sequence : placed_) {
    rank_of_[static_cast<size_t>(sequence)] = kAbsent;
  }
  placed_.clear();
  std::fill(head_.begin(), head_.end(), kEnd);
  std::fill(tail_.begin(), tail_.end(), kEnd);
  sharded_tokens_ = 0;
  roll_back_count_ = 0;
  most_tokens_.Reset(0);
  fewest_tokens_.Reset(0);
  least_work_.Reset(0.0);
}

int64_t Placement::load(int32_t rank) const {
  return local_tokens(rank) + BlockRows(sharded_tokens_, ranks(), rank);
}

// The first `extra` ranks hold one shard row more than the others, so the
// extremes over all ranks are those of the two parts.
int32_t Placement::EmptiestRank() const {
  const auto extra = static_cast<int32_t>(sharded_tokens_ % ranks());
  const int32_t a = fewest_tokens_.Best(0, extra);
  const int32_t b = fewest_tokens_.Best(extra, ranks());
  if (a < 0 || b < 0) return a < 0 ? b : a;
  return local_tokens(a) + 1 <= local_tokens(b) ? a : b;
}

int32_t Placement::Fuller(int32_t a, int32_t b) const {
  if (a < 0 || b < 0) return a < 0 ? b : a;
  return local_tokens(a) + 1 >= local_tokens(b) ? a : b;
}

int32_t Placement::FullestRank() const {
  const auto extra = static_cast<int32_t>(sharded_tokens_ % ranks());
  return Fuller(most_tokens_.Best(0, extra), most_tokens_.Best(extra, ranks()));
}

int32_t Placement::FullestRankWithLocal() const {
  const auto extra = static_cast<int32_t>(sharded_tokens_ % ranks());
  int32_t a = most_tokens_.Best(0, extra);
  int32_t b = most_tokens_.Best(extra, ranks());
  if (a >= 0 && local_tokens(a) == 0) a = -1;
  if (b >= 0 && local_tokens(b) == 0) b = -1;
  return Fuller(a, b);
}

bool Placement::FitsWithSharded(int64_t sharded) const {
  const auto extra = static_cast<int32_t>(sharded % ranks());
  const int32_t a = most_tokens_.Best(0, extra);
  const int32_t b = most_tokens_.Best(extra, ranks());
  int64_t most = 0;
  if (a >= 0) most = local_tokens(a) + 1;
  if (b >= 0) most = std::max(most, local_tokens(b));
  return job_.FitsRank(most + sharded / ranks(), sharded);
}

bool Placement::FitsLocal(int32_t sequence, int32_t rank) const {
  return job_.FitsRank(load(rank) + length(sequence), sharded_tokens_);
}

bool Placement::FitsSharded(int32_t sequence) const {
  return ranks() > 1 && FitsWithSharded(sharded_tokens_ + length(sequence));
}

void Placement::AddLocal(int32_t rank, int64_t tokens, double work) {
  const int64_t local = local_tokens(rank) + tokens;
  most_tokens_.Set(rank, local);
  fewest_tokens_.Set(rank, local);
  // An empty rank's work is exactly 0, whatever was added and taken away.
  least_work_.Set(rank, local == 0 ? 0.0 : least_work_.key(rank) + work);
}

void Placement::Assign(int32_t sequence, int32_t rank) {
  const auto k = static_cast<size_t>(sequence);
  const auto r = static_cast<size_t>(rank);
  placed_.push_back(sequence);
  rank_of_[k] = rank;
  next_[k] = kEnd;
  if (tail_[r] == kEnd) {
    head_[r] = sequence;
  } else {
    next_[static_cast<size_t>(tail_[r])] = sequence;
  }
  tail_[r] = sequence;
  AddLocal(rank, lengths_[k], work_[k]);
}

void Placement::Shard(int32_t sequence) {
  placed_.push_back(sequence);
  rank_of_[static_cast<size_t>(sequence)] = kSharded;
  sharded_tokens_ += length(sequence);
}

void Placement::RollBack(int32_t rank) {
  const auto r = static_cast<size_t>(rank);
  const int32_t sequence = head_[r];
  const auto k = static_cast<size_t>(sequence);
  head_[r] = next_[k];
  if (head_[r] == kEnd) tail_[r] = kEnd;
  rank_of_[k] = kSharded;
  AddLocal(rank, -lengths_[k], -work_[k]);
  sharded_tokens_ += lengths_[k];
  ++roll_back_count_;
}

std::vector<SequencePlacement> Placement::Export(int32_t first_rank) const {
  std::vector<SequencePlacement> out;
  out.reserve(placed_.size());
  for (const int32_t k : placed_) {
    const int32_t rank = rank_of(k);
    const bool sharded = rank == kSharded;
    out.push_back({.sequence = k,
                   .token_count = static_cast<int32_t>(length(k)),
                   .first_rank = first_rank + (sharded ? 0 : rank),
                   .degree = sharded ? ranks() : 1});
  }
  return out;
}

absl::Status Placement::CheckConsistency() const {
  std::vector<int64_t> tokens(head_.size(), 0);
  std::vector<double> work(head_.size(), 0.0);
  std::vector<int> seen(lengths_.size(), 0);
  for (int32_t r = 0; r < ranks(); ++r) {
    const auto i = static_cast<size_t>(r);
    int32_t last = kEnd;
    for (int32_t k = head_[i]; k != kEnd; k = next_[static_cast<size_t>(k)]) {
      if (rank_of(k) != r || ++seen[static_cast<size_t>(k)] != 1) {
        return absl::InternalError(
            absl::StrCat("(1) sequence ", k, " in the queue of rank ", r));
      }
      tokens[i] += length(k);
      work[i] += work_[static_cast<size_t>(k)];
      last = k;
    }
    if (last != tail_[i]) {
      return absl::InternalError(absl::StrCat("(1) tail of rank ", r));
    }
  }
  int64_t sharded = 0;
  for (const int32_t k : placed_) {
    if (rank_of(k) == kSharded) {
      sharded += length(k);
      ++seen[static_cast<size_t>(k)];
    }
    if (seen[static_cast<size_t>(k)] != 1) {
      return absl::InternalError(absl::StrCat("(1) sequence ", k));
    }
  }
  for (size_t k = 0; k < seen.size(); ++k) {
    if ((seen[k] != 0) != (rank_of_[k] != kAbsent)) {
      return absl::InternalError(absl::StrCat("(1) sequence ", k));
    }
  }
  for (int32_t r = 0; r < ranks(); ++r) {
    const auto i = static_cast<size_t>(r);
    if (tokens[i] != local_tokens(r) || tokens[i] != fewest_tokens_.key(r) ||
        std::abs(work[i] - least_work_.key(r)) > 1e-9 * (1 + work[i])) {
      return absl::InternalError(absl::StrCat("(2) rank ", r));
    }
  }
  if (sharded != sharded_tokens_) {
    return absl::InternalError("(3) sharded tokens");
  }
  return absl::OkStatus();
}

}  // namespace skrull
