#include "skrull/planner/chunk_flow/chunk_memory.h"

#include <algorithm>

#include "skrull/planner/layout.h"

namespace skrull {
namespace {

// The largest x in [low, high] with holds(x), of which smaller ones hold too;
// low - 1 if there is none.
template <typename Holds>
int64_t Largest(int64_t low, int64_t high, const Holds& holds) {
  int64_t good = low - 1;
  while (good < high) {
    const int64_t middle = good + (high - good + 1) / 2;
    if (holds(middle)) {
      good = middle;
    } else {
      high = middle - 1;
    }
  }
  return good;
}

// The largest chunk size that K retained chunks leave room for, the whole
// sequence's keys and values left out.
int64_t LargestChunk(const Job& job) {
  const int64_t group = job.pool().cp_size;
  const int64_t rows = std::max<int64_t>(
      1, job.bucket_size() / job.chunk_flow().retained_chunks);
  return std::max<int64_t>(
      1, std::min(rows * group, job.LongestOnDegree(job.pool().cp_size)));
}

}  // namespace

int64_t RetainedRows(const Job& job, ChunkShape shape, int64_t tokens) {
  const int32_t group = job.pool().cp_size;
  if (tokens <= shape.chunk_size) return MaxBlockRows(tokens, group);
  const int64_t full = MaxBlockRows(shape.chunk_size, group);
  const int64_t before_last = (tokens - 1) / shape.chunk_size;
  if (shape.retained <= before_last) return shape.retained * full;
  return before_last * full +
         MaxBlockRows(tokens - before_last * shape.chunk_size, group);
}

bool HoldsSequence(const Job& job, ChunkShape shape, int64_t tokens) {
  const bool gathers = tokens > shape.chunk_size || job.pool().cp_size > 1;
  return job.FitsRank(RetainedRows(job, shape, tokens), gathers ? tokens : 0);
}

int64_t StandaloneCapacity(const Job& job, ChunkShape shape) {
  return std::min(shape.chunk_size, job.LongestOnDegree(job.pool().cp_size));
}

ChunkShape ChooseChunkShape(const Job& job, int64_t longest) {
  const int64_t retained = job.chunk_flow().retained_chunks;
  if (job.chunk_flow().chunk_size_tokens) {
    return {*job.chunk_flow().chunk_size_tokens, retained};
  }
  const ChunkShape most{LargestChunk(job), retained};
  if (HoldsSequence(job, most, longest)) return most;
  // Longer than a chunk of any size up to that one, so a smaller chunk keeps
  // fewer rows of it.
  const int64_t group = job.pool().cp_size;
  const int64_t rows = Largest(1, most.chunk_size / group, [&](int64_t count) {
    return HoldsSequence(job, {count * group, retained}, longest);
  });
  if (rows >= 1) return {rows * group, retained};
  return {std::min(most.chunk_size, group), retained};
}

int64_t LongestInChunks(const Job& job, int64_t most) {
  // Where the job leaves the chunk size open, the smallest holds most.
  const int64_t retained = job.chunk_flow().retained_chunks;
  const ChunkShape shape{
      job.chunk_flow().chunk_size_tokens.value_or(
          std::min<int64_t>(LargestChunk(job), job.pool().cp_size)),
      retained};
  int64_t longest = std::min(most, StandaloneCapacity(job, shape));
  if (longest == std::min(most, shape.chunk_size)) {
    longest = std::max(longest, Largest(longest + 1, most, [&](int64_t tokens) {
                         return HoldsSequence(job, shape, tokens);
                       }));
  }
  if (!job.chunk_flow().chunk_size_tokens) {
    longest = std::max(
        longest,
        std::min(most, StandaloneCapacity(job, {LargestChunk(job), retained})));
  }
  return longest;
}

}  // namespace skrull
