#include "skrull/cuda/chunk_order.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

namespace skrull::exec {
namespace {

constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

std::string Name(const RankChunk& chunk) {
  return "chunk " + std::to_string(chunk.chunk);
}

const char* PassName(ChunkPass pass) {
  switch (pass) {
    case ChunkPass::kForward:
      return "forward";
    case ChunkPass::kForwardDiscard:
      return "forward without keeping";
    case ChunkPass::kRecompute:
      return "recomputation";
    case ChunkPass::kBackward:
      return "backward";
  }
  return "unknown pass";
}

// What chunks have done so far.
class Replay {
 public:
  Replay(const RankChunkPlan& plan, const ChunkGroups& groups)
      : plan_(plan),
        groups_(groups),
        states_(plan.chunks.size()),
        retained_(groups.groups.size()) {}

  // Why chunk `c` cannot do that now; empty if it can, and has done.
  std::string Run(size_t c, ChunkPass pass) {
    State& state = states_[c];
    const auto g = static_cast<size_t>(groups_.group_of[c]);
    switch (pass) {
      case ChunkPass::kForward:
      case ChunkPass::kForwardDiscard:
        if (state != State::kNew) return "it went forward before";
        if (const std::string missing = Missing(c, -1, State::kDiscarded);
            !missing.empty()) {
          return missing + " has not gone forward";
        }
        state = State::kDiscarded;
        return pass == ChunkPass::kForward ? Keep(&state, g) : "";
      case ChunkPass::kRecompute:
        if (state != State::kDiscarded) {
          return "it has not discarded its activations";
        }
        return Keep(&state, g);
      case ChunkPass::kBackward:
        if (state != State::kKept) return "its activations are not kept";
        if (const std::string missing = Missing(c, 1, State::kDone);
            !missing.empty()) {
          return missing + " has not gone backward";
        }
        state = State::kDone;
        --retained_[g];
        return {};
    }
    return "there is no such pass";
  }

  // The first chunk that has not gone backward, or the number of chunks.
  size_t FirstUnfinished() const {
    return static_cast<size_t>(
        std::ranges::find_if(states_,
                             [](State s) { return s != State::kDone; }) -
        states_.begin());
  }

 private:
  // In the order in which a chunk goes through them.
  enum class State : int8_t { kNew, kDiscarded, kKept, kDone };

  std::string Keep(State* state, size_t group) {
    if (retained_[group] >= plan_.retained_chunks) {
      return "its sequence keeps the activations of " +
             std::to_string(plan_.retained_chunks) + " chunks already";
    }
    ++retained_[group];
    *state = State::kKept;
    return {};
  }

  // The chunk `step` places on in its group, if it has not come to `state`.
  std::string Missing(size_t c, int step, State state) const {
    const auto& chunks =
        groups_.groups[static_cast<size_t>(groups_.group_of[c])].chunks;
    const int64_t place = int64_t{plan_.chunks[c].group_index} + step;
    if (place < 0 || place >= std::ssize(chunks)) return {};
    const auto other = static_cast<size_t>(chunks[static_cast<size_t>(place)]);
    return states_[other] >= state ? "" : Name(plan_.chunks[other]);
  }

  const RankChunkPlan& plan_;
  const ChunkGroups& groups_;
  std::vector<State> states_;
  std::vector<int64_t> retained_;  // of each group
};

}  // namespace

Result<ChunkGroups> GroupChunks(std::span<const RankChunk> chunks) {
  ChunkGroups out;
  std::map<int32_t, size_t> split;  // sequence -> its group
  for (size_t c = 0; c < chunks.size(); ++c) {
    const RankChunk& chunk = chunks[c];
    if (c > 0 && chunk.chunk <= chunks[c - 1].chunk) {
      return InvalidArgument(Name(chunk) + " is listed behind " +
                             Name(chunks[c - 1]));
    }
    if (chunk.token_count < 1 || chunk.token_count > kMaxTokens) {
      return InvalidArgument(Name(chunk) + ": token_count is " +
                             std::to_string(chunk.token_count));
    }
    size_t g = out.groups.size();
    if (chunk.group_size > 1) {
      if (chunk.segments.size() != 1) {
        return InvalidArgument(Name(chunk) + " is one of several but has " +
                               std::to_string(chunk.segments.size()) +
                               " segments");
      }
      g = split.emplace(chunk.segments[0].sequence, g).first->second;
    }
    if (g == out.groups.size()) out.groups.emplace_back();
    ChunkGroup& group = out.groups[g];
    const auto c32 = static_cast<int32_t>(c);
    const RankChunk& head = group.chunks.empty()
                                ? chunk
                                : chunks[static_cast<size_t>(group.chunks[0])];
    if (chunk.group_index != std::ssize(group.chunks) ||
        chunk.group_size != head.group_size ||
        (chunk.group_size > 1 &&
         chunk.segments[0].token_count != head.segments[0].token_count)) {
      return InvalidArgument(
          Name(chunk) + " is chunk " + std::to_string(chunk.group_index) +
          " of " + std::to_string(chunk.group_size) + ", where chunk " +
          std::to_string(group.chunks.size()) + " of " +
          std::to_string(head.group_size) + " of its sequence is next");
    }
    out.group_of.push_back(static_cast<int32_t>(g));
    out.begin_of.push_back(group.token_count);
    group.chunks.push_back(c32);
    group.token_count += chunk.token_count;
  }
  for (const ChunkGroup& group : out.groups) {
    const RankChunk& last = chunks[static_cast<size_t>(group.chunks.back())];
    if (last.group_size == 1) continue;
    const int64_t tokens = last.segments[0].token_count;
    if (std::ssize(group.chunks) != last.group_size ||
        group.token_count != tokens) {
      return InvalidArgument(
          "sequence " + std::to_string(last.segments[0].sequence) + " has " +
          std::to_string(group.chunks.size()) + " of " +
          std::to_string(last.group_size) + " chunks, with " +
          std::to_string(group.token_count) + " of " + std::to_string(tokens) +
          " tokens");
    }
  }
  return out;
}

Result<std::vector<ChunkOperation>> ResolveOperations(
    const RankChunkPlan& plan, const ChunkGroups& groups) {
  if (plan.retained_chunks < 1) {
    return InvalidArgument("retained_chunks is " +
                           std::to_string(plan.retained_chunks));
  }
  std::vector<ChunkOperation> operations;
  Replay replay(plan, groups);
  for (size_t i = 0; i < plan.operations.size(); ++i) {
    const ChunkOperation& operation = plan.operations[i];
    const auto found = std::ranges::lower_bound(plan.chunks, operation.chunk,
                                                {}, &RankChunk::chunk);
    if (found == plan.chunks.end() || found->chunk != operation.chunk) {
      return InvalidArgument(DescribeOperation(i, operation) +
                             ": the rank has no such chunk");
    }
    const auto c = static_cast<size_t>(found - plan.chunks.begin());
    if (const std::string why = replay.Run(c, operation.pass); !why.empty()) {
      return InvalidArgument(DescribeOperation(i, operation) + ": " + why);
    }
    operations.push_back({operation.pass, static_cast<int32_t>(c)});
  }
  if (const size_t c = replay.FirstUnfinished(); c < plan.chunks.size()) {
    return InvalidArgument(Name(plan.chunks[c]) +
                           " never goes backward in the plan's operations");
  }
  return operations;
}

std::string DescribeOperation(size_t index, const ChunkOperation& operation) {
  return "operation " + std::to_string(index) + " (" +
         PassName(operation.pass) + " of chunk " +
         std::to_string(operation.chunk) + ")";
}

Status ChunkProgress::Advance(std::span<const ChunkOperation> operations,
                              int32_t operation, int32_t layer, bool backward) {
  if (next_ == operations.size()) {
    return InvalidArgument("operation " + std::to_string(operation) +
                           " follows the step's last one");
  }
  const ChunkOperation& next = operations[next_];
  const bool is_backward = next.pass == ChunkPass::kBackward;
  const int32_t next_layer =
      is_backward ? layer_count_ - 1 - layers_done_ : layers_done_;
  if (operation != static_cast<int64_t>(next_) || layer != next_layer ||
      backward != is_backward) {
    return InvalidArgument(std::string(backward ? "Backward" : "Forward") +
                           " of operation " + std::to_string(operation) +
                           " in layer " + std::to_string(layer) + ", where " +
                           DescribeOperation(next_, next) + " in layer " +
                           std::to_string(next_layer) + " is next");
  }
  if (++layers_done_ == layer_count_) {
    layers_done_ = 0;
    ++next_;
  }
  return {};
}

}  // namespace skrull::exec
