#include "skrull/planner/chunk_replay_checker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "skrull/planner/checker_status.h"
#include "skrull/planner/layout.h"

namespace skrull {
namespace {

using checker::Broken;
using checker::Digits;

constexpr int32_t kNone = ChunkLinks::kNone;

}  // namespace

std::string OperationName::Text() const {
  return absl::StrCat("DP rank ", dp_rank, ", operation ", operation,
                      ", chunk ", chunk);
}

absl::Status ChunkReplay::Step(const OperationName& where, ChunkPass pass,
                               size_t index) {
  const Chunk& chunk = plan_.chunks[index];
  const int64_t rows = MaxBlockRows(chunk.token_count, job_.pool().cp_size);
  const int32_t before = links_[index].before;
  const int32_t after = links_[index].after;
  State& state = state_[index];
  int64_t& kept = kept_[static_cast<size_t>(links_[index].first)];
  if (pass == ChunkPass::kBackward) {
    if (state != State::kKept) {
      return Broken("schedule", where.Text(),
                    "backward without its activations");
    }
    if (after != kNone && state_[static_cast<size_t>(after)] != State::kDone) {
      return Broken(
          "schedule", where.Text(),
          absl::StrCat("backward before chunk ", after, " behind it"));
    }
    state = State::kDone;
    --kept;
    load_ -= rows;
    if (before == kNone) gathered_ -= Gathered(chunk);
    return absl::OkStatus();
  }
  if (pass == ChunkPass::kRecompute) {
    if (state != State::kDiscarded) {
      return Broken("schedule", where.Text(), "recomputed without need");
    }
  } else {
    if (state != State::kWaiting) {
      return Broken("schedule", where.Text(), "forward a second time");
    }
    if (before != kNone &&
        state_[static_cast<size_t>(before)] == State::kWaiting) {
      return Broken("schedule", where.Text(),
                    absl::StrCat("forward before chunk ", before));
    }
    if (pass == ChunkPass::kForwardDiscard && chunk.group_size == 1) {
      return Broken("schedule", where.Text(), "a single chunk is discarded");
    }
    if (before == kNone) gathered_ += Gathered(chunk);
  }
  if (absl::Status s = CheckMemory(where, load_ + rows); !s.ok()) return s;
  if (pass == ChunkPass::kForwardDiscard) {
    state = State::kDiscarded;
    return absl::OkStatus();
  }
  state = State::kKept;
  load_ += rows;
  if (++kept > plan_.retained_chunks) {
    return Broken("schedule", where.Text(),
                  absl::StrCat(kept, " chunks of its sequence are kept, ",
                               plan_.retained_chunks, " may be"));
  }
  return absl::OkStatus();
}

int64_t ChunkReplay::Gathered(const Chunk& chunk) const {
  if (chunk.group_size > 1) return chunk.pieces[0].token_count;
  return job_.pool().cp_size > 1 ? chunk.token_count : 0;
}

absl::Status ChunkReplay::CheckMemory(const OperationName& where,
                                      int64_t load) {
  max_load_ = std::max(max_load_, load);
  if (job_.FitsRank(load, gathered_)) return absl::OkStatus();
  if (load > job_.bucket_size()) {
    return Broken("memory", where.Text(),
                  absl::StrCat(load, " tokens > ", job_.bucket_size(),
                               ", the bucket size"));
  }
  return Broken(
      "memory", where.Text(),
      absl::StrCat(load, " tokens and K/V of ", gathered_, " exceed ",
                   Digits(job_.byte_budget()), " bytes, the byte budget"));
}

}  // namespace skrull
