// The checker's replay of what a DP rank does with its chunks.
#ifndef SKRULL_SERVER_PLANNER_CHUNK_REPLAY_CHECKER_H_
#define SKRULL_SERVER_PLANNER_CHUNK_REPLAY_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "skrull/planner/chunk_coverage_checker.h"
#include "skrull/planner/chunk_plan.h"
#include "skrull/planner/job.h"

namespace skrull {

// An operation, for messages.
struct OperationName {
  int32_t dp_rank;
  size_t operation;
  int32_t chunk;

  std::string Text() const;
};

// Runs operations one by one and stops at the first that lacks what it needs or
// exceeds memory. Not thread-safe. `job` and `plan` must outlive it.
class ChunkReplay {
 public:
  // REQUIRES: the plan's chunks passed CheckChunkCoverage, which made `links`.
  ChunkReplay(const Job& job, const ChunkPlan& plan,
              std::vector<ChunkLinks> links)
      : job_(job),
        plan_(plan),
        links_(std::move(links)),
        state_(plan.chunks.size(), State::kWaiting),
        kept_(plan.chunks.size(), 0) {}

  // The next DP rank begins, with nothing in memory.
  void BeginDpRank() {
    load_ = 0;
    gathered_ = 0;
  }

  // The next operation. FAILED_PRECONDITION, "schedule" or "memory". REQUIRES:
  // `chunk` is an index in the plan's chunks, of this DP rank. O(1).
  absl::Status Step(const OperationName& where, ChunkPass pass, size_t chunk);

  // True if the chunk went backward.
  bool IsDone(size_t chunk) const { return state_[chunk] == State::kDone; }

  // Most rows that a rank held at a time so far, tokens.
  int64_t max_load() const { return max_load_; }

 private:
  // What became of a chunk so far.
  enum class State : int8_t { kWaiting, kKept, kDiscarded, kDone };

  // Tokens whose keys and values a rank holds besides activations.
  int64_t Gathered(const Chunk& chunk) const;
  absl::Status CheckMemory(const OperationName& where, int64_t load);

  const Job& job_;
  const ChunkPlan& plan_;
  const std::vector<ChunkLinks> links_;
  std::vector<State> state_;   // per chunk
  std::vector<int64_t> kept_;  // at each group's first: its chunks kept now
  int64_t load_ = 0;           // rows kept on the DP rank's fullest rank
  int64_t gathered_ = 0;       // tokens of K/V on each of its ranks
  int64_t max_load_ = 0;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_CHUNK_REPLAY_CHECKER_H_
