// What chunks a DP rank's memory holds.
//
// A chunk is shared by the whole CP group of g ranks, and a rank's rows of it
// are those of a sequence of its length. With K chunks retained:
//  - a chunk of whole sequences of n tokens obeys the rule of a micro-batch:
//    load = ceil(n / g), gathered = n (0 when g is 1);
//  - a sequence of S tokens in chunks of C keeps the activations of at most K
//    chunks, of its largest in the worst case: load = the rows of min(K,
//    ceil(S / C)) chunks; and the keys and values of the whole sequence until
//    its last backward pass: gathered = S.
// Job::FitsRank judges load and gathered. Pure; safe from any thread.
#ifndef SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHUNK_MEMORY_H_
#define SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHUNK_MEMORY_H_

#include <cstdint>

#include "skrull/planner/job.h"

namespace skrull {

// The numbers that decide.
struct ChunkShape {
  int64_t chunk_size = 1;  // C, tokens
  int64_t retained = 1;    // K
};

// Rows of the fullest rank of the chunks that a sequence keeps at a time; of
// the whole sequence where it is a single chunk. REQUIRES: tokens >= 1. O(1).
int64_t RetainedRows(const Job& job, ChunkShape shape, int64_t tokens);

// True if memory holds a sequence of `tokens` cut into chunks of that shape, or
// in a chunk with others where it is no longer than one. O(1).
bool HoldsSequence(const Job& job, ChunkShape shape, int64_t tokens);

// The most tokens that a chunk of whole sequences may have: at most
// shape.chunk_size; 0 if no rank of the group holds any. O(log).
int64_t StandaloneCapacity(const Job& job, ChunkShape shape);

// The shape the job asks for; where it states no chunk size, the largest one
// with which memory holds a sequence of `longest` tokens, the longest of the
// batch, or the one that comes closest. A multiple of g unless the bytes of a
// single chunk limit it. O(log).
ChunkShape ChooseChunkShape(const Job& job, int64_t longest);

// The longest sequence, up to `most`, that the job's chunks can hold, whatever
// else is in the batch; 0 if none. O(log^2).
int64_t LongestInChunks(const Job& job, int64_t most);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_CHUNK_FLOW_CHUNK_MEMORY_H_
