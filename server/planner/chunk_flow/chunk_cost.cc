#include "skrull/planner/chunk_flow/chunk_cost.h"

#include <algorithm>

#include "skrull/planner/lower_bound.h"

namespace skrull {

ChunkCost::ChunkCost(const Job& job, const CostModel& cost)
    : job_(job),
      cost_(cost),
      forward_share_(1 / (1 + job.cost().backward_forward_ratio)),
      unit_(job.cost().seconds_per_flop * job.cost().pass_multiplier /
            job.pool().cp_size),
      slow_tokens_(job.pool().cp_size * job.cost().efficiency_half_tokens) {}

double ChunkCost::PieceSeconds(TokenRange range) const {
  // Attention of [b, e) is e^2 - b^2 = (e - b) (e + b), over eff((e - b) / g).
  const auto tokens = static_cast<double>(range.size());
  const auto ends = static_cast<double>(range.begin + range.end);
  return unit_ * (job_.linear_flops() * tokens) +
         unit_ * (job_.attention_flops() * ends * (tokens + slow_tokens_));
}

double ChunkCost::ComputeSeconds(const Chunk& chunk) const {
  double seconds = 0;
  for (const ChunkPiece& piece : chunk.pieces) {
    seconds += PieceSeconds(piece.range);
  }
  return seconds;
}

double ChunkCost::ChunkSeconds(double compute_seconds, int32_t dp_rank,
                               int64_t token_count) const {
  const int32_t cp_size = job_.pool().cp_size;
  // All pieces are sharded, so nothing hides the exchange in either scope.
  return compute_seconds +
         cost_.Exchange({dp_rank * cp_size, cp_size}, token_count);
}

double ChunkCost::PassSeconds(const Chunk& chunk, ChunkPass pass) const {
  if (pass == ChunkPass::kRecompute) {
    return RecomputeSeconds(ComputeSeconds(chunk));
  }
  const double seconds =
      job_.cost().seconds_per_micro_batch + chunk.predicted_seconds;
  const double forward = seconds * forward_share_;
  return pass == ChunkPass::kBackward ? seconds - forward : forward;
}

double ChunkCost::LowerBoundSeconds(std::span<const int64_t> lengths) const {
  double compute = 0;
  double longest = 0;
  int64_t tokens = 0;
  for (const int64_t length : lengths) {
    const double seconds = PieceSeconds({0, length});
    compute += seconds;
    longest = std::max(longest, seconds);
    tokens += length;
  }
  // No chunk holds more than the ranks of its group do.
  const int64_t group_tokens = job_.bucket_size() * job_.pool().cp_size;
  const auto chunks =
      static_cast<double>((tokens + group_tokens - 1) / group_tokens);
  const auto dp_size = static_cast<double>(job_.pool().dp_size);
  const double overhead = job_.cost().seconds_per_micro_batch;
  return std::max(
      compute / dp_size + overhead * std::max(1.0, chunks / dp_size),
      longest + overhead);
}

double ChunkPlanLowerBound(const Job& job, const CostModel& cost,
                           std::span<const int64_t> lengths) {
  const double bound = ChunkCost(job, cost).LowerBoundSeconds(lengths);
  for (const int64_t length : lengths) {
    if (length > job.longest_sequence()) return bound;
  }
  return std::min(bound, ComputeLowerBound(job, cost, lengths).seconds);
}

}  // namespace skrull
