// Attention on the host in tiles of queries and keys: online softmax forward,
// two passes backward. Synchronous; the loop runs on a WorkerPool.
//
// Forward: a task is one tile of queries of one head; it walks the keys that
// the tile may see. Backward: delta and dQ likewise, then dK and dV, where a
// task is one tile of keys of one key head and walks the queries, of all query
// heads that read it, that may see the tile. So no two tasks write the same
// element, sums have a fixed order, and the bits do not depend on the number of
// threads. Any head_dim, any ratio of heads, any segments; float16 and bfloat16
// are stored, and computed in float32.
#ifndef SKRULL_CUDA_CPU_BLOCKED_ATTENTION_H_
#define SKRULL_CUDA_CPU_BLOCKED_ATTENTION_H_

#include <cstdint>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/cpu/worker_pool.h"

namespace skrull::exec {

// REQUIRES: CheckForward(call). Throws std::bad_alloc.
void BlockedForward(const AttentionForward& call, WorkerPool* pool);

// REQUIRES: CheckBackward(call); `delta` holds total_q * q_heads values of
// AccumulatorOf(dtype), of any contents. Throws std::bad_alloc.
void BlockedBackward(const AttentionBackward& call, void* delta,
                     WorkerPool* pool);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CPU_BLOCKED_ATTENTION_H_
