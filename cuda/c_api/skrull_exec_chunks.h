/* C interface of the chunk executor (chunk_executor.h): attention over a chunk
 * plan, for sequences that no block of ranks holds. Part of libskrull_exec.so;
 * devices, backends, communicators, errors, versions, lifetimes and threads are
 * those of skrull_exec.h. What is said there of executors, plans and steps
 * holds for those here.
 *
 * Example, one rank with n layers (checks of the codes left out):
 *   skrull_chunk_plan_create(&share, &plan);
 *   skrull_chunk_executor_prepare(executor, plan, &step);
 *   for each operation i:
 *     skrull_chunk_plan_operation(plan, i, &info);
 *     if (info.pass == SKRULL_CHUNK_BACKWARD)
 *       for layer = n - 1 .. 0:
 *         skrull_chunk_executor_backward(executor, step, i, layer, &backward,
 *                                        stream);
 *     else
 *       for layer = 0 .. n - 1:
 *         skrull_chunk_executor_forward(executor, step, i, layer, &forward,
 *                                       stream);
 *   skrull_chunk_executor_wait(executor, 60.0);
 *
 * Since version 2. Compiles as C99 and later, and as C++.
 */
#ifndef SKRULL_CUDA_C_API_SKRULL_EXEC_CHUNKS_H_
#define SKRULL_CUDA_C_API_SKRULL_EXEC_CHUNKS_H_

#include <stdint.h>

#include "skrull/cuda/c_api/skrull_exec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
 * Chunk plans: one rank's share of a plan of POLICY_CHUNK_FLOW
 * (skrull.v1.RankChunkPlan). Needs no device and no other rank. */

typedef struct skrull_chunk_plan skrull_chunk_plan;

/* One chunk: whole sequences, or a part of one. */
typedef struct skrull_chunk {
  int32_t chunk;       /* index in the whole plan's chunks */
  int32_t group_index; /* place among the chunks of its sequence; 0 */
  int32_t group_size;  /* and their number; 1 for whole sequences */
  int32_t reserved;    /* 0 */
  int64_t token_count; /* of the chunk, over all ranks of its group */
  double token_weight; /* the rank's share of the batch's loss, 0 .. 1 */
} skrull_chunk;

enum skrull_chunk_pass {
  SKRULL_CHUNK_FORWARD = 0,         /* keep activations for the backward pass */
  SKRULL_CHUNK_FORWARD_DISCARD = 1, /* keep none; recomputed later */
  SKRULL_CHUNK_RECOMPUTE = 2,       /* forward again, keeping activations */
  SKRULL_CHUNK_BACKWARD = 3
};

typedef struct skrull_chunk_operation {
  int32_t pass;  /* skrull_chunk_pass */
  int32_t chunk; /* skrull_chunk.chunk of one of the share's chunks */
} skrull_chunk_operation;

typedef struct skrull_rank_chunk_plan {
  int64_t struct_bytes;
  const char* digest; /* of the whole plan, 64 hexadecimal digits */
  int32_t rank;
  int32_t ranks; /* in the pool */
  int32_t chunk_count;
  int32_t operation_count;
  int32_t block_count;
  int32_t reserved; /* 0 */
  /* Chunks of one sequence that keep activations at a time, at most; >= 1. */
  int64_t retained_chunks;
  const skrull_chunk* chunks; /* in the plan's order */
  /* Segments of chunks[i]: [segment_offsets[i], segment_offsets[i + 1]), in row
   * order. chunk_count + 1 entries, from 0. Their ranges are positions in whole
   * sequences, and token_count is the whole sequence's. */
  const int64_t* segment_offsets;
  const skrull_segment* segments;
  const skrull_chunk_operation* operations; /* in order */
  /* first_rank, degree of every communicator of the whole plan. */
  const int32_t* blocks;
} skrull_rank_chunk_plan;

/* Errors: INVALID_ARGUMENT naming the chunk and the segment that is no rank's
 * share of any chunk, or the operation that cannot be where it is: one that
 * lacks keys, activations or gradients, or retains too many chunks. */
int32_t skrull_chunk_plan_create(const skrull_rank_chunk_plan* rank_plan,
                                 skrull_chunk_plan** plan);
void skrull_chunk_plan_destroy(skrull_chunk_plan* plan);

int32_t skrull_chunk_plan_operation_count(const skrull_chunk_plan* plan,
                                          int32_t* count);

/* An operation and its chunk. */
typedef struct skrull_chunk_operation_info {
  int64_t struct_bytes; /* set by the caller */
  int32_t pass;
  int32_t chunk; /* index in the whole plan's chunks */
  int32_t group_index;
  int32_t group_size;
  int64_t rows;        /* of q, k, v on this rank */
  int64_t token_count; /* over all ranks of the group */
  double token_weight;
} skrull_chunk_operation_info;

/* For all below. Errors: INVALID_ARGUMENT if there is no such operation, or if
 * `count` is not rows. */
int32_t skrull_chunk_plan_operation(const skrull_chunk_plan* plan,
                                    int32_t operation,
                                    skrull_chunk_operation_info* info);
/* Position of each row of the operation's chunk in its sequence. */
int32_t skrull_chunk_plan_positions(const skrull_chunk_plan* plan,
                                    int32_t operation, int32_t* positions,
                                    int64_t count);
/* Index of each row's sequence in the global batch. */
int32_t skrull_chunk_plan_sequences(const skrull_chunk_plan* plan,
                                    int32_t operation, int32_t* sequences,
                                    int64_t count);

/* ---------------------------------------------------------------------------
 * Execution. */

typedef struct skrull_chunk_executor skrull_chunk_executor;
typedef struct skrull_chunk_step skrull_chunk_step;

typedef struct skrull_chunk_executor_options {
  int64_t struct_bytes;
  double scale;          /* of q.k before the softmax */
  int32_t dtype;         /* 0 float16, 1 bfloat16, 2 float32, 3 float64 */
  int32_t q_heads;       /* a multiple of kv_heads */
  int32_t kv_heads;      /* >= 1 */
  int32_t head_dim;      /* >= 1 */
  int32_t deterministic; /* 1: equal calls give equal bits */
  int32_t layer_count;   /* layers whose attention goes through it; >= 1 */
  /* What dK, dV travel in. 0: dtype. 1: the accumulator's type, float32, or
   * float64 of float64. */
  int32_t grad_comm_accumulator;
  int32_t reserved; /* 0 */
  /* How ranks compare plans. NULL: through the communicator. */
  skrull_gather_digests gather_digests;
  void* gather_context;
} skrull_chunk_executor_options;

/* As skrull_executor_create. */
int32_t skrull_chunk_executor_create(
    const skrull_chunk_executor_options* options, skrull_device* device,
    skrull_backend* backend, skrull_comm* comm,
    skrull_chunk_executor** executor);
void skrull_chunk_executor_destroy(skrull_chunk_executor* executor);

/* As skrull_executor_prepare. Calls go to the step of the last prepare; one
 * that was under way is given up. */
int32_t skrull_chunk_executor_prepare(skrull_chunk_executor* executor,
                                      const skrull_chunk_plan* plan,
                                      skrull_chunk_step** step);
void skrull_chunk_step_destroy(skrull_chunk_step* step);

/* Enqueues one layer's attention of one operation on the stream and returns.
 * The calls are the plan's operations in order, and in each all layers,
 * ascending forward and descending backward; also with no rows. Shapes: as in
 * skrull_exec.h, with the rows of the operation's chunk. A recomputation gets k
 * and v as its forward pass did; a backward pass q, k, v, o and lse of the
 * chunk's last forward pass or recomputation. Errors: INVALID_ARGUMENT saying
 * which call is next. */
int32_t skrull_chunk_executor_forward(skrull_chunk_executor* executor,
                                      const skrull_chunk_step* step,
                                      int32_t operation, int32_t layer,
                                      const skrull_forward_tensors* tensors,
                                      void* stream);
int32_t skrull_chunk_executor_backward(skrull_chunk_executor* executor,
                                       const skrull_chunk_step* step,
                                       int32_t operation, int32_t layer,
                                       const skrull_backward_tensors* tensors,
                                       void* stream);

/* Bytes of the store of keys, values and their gradients. Not during a prepare.
 */
int32_t skrull_chunk_executor_store_bytes(const skrull_chunk_executor* executor,
                                          int64_t* bytes);

/* As those of skrull_executor. */
int32_t skrull_chunk_executor_poll(skrull_chunk_executor* executor);
int32_t skrull_chunk_executor_wait(skrull_chunk_executor* executor,
                                   double seconds);
int32_t skrull_chunk_executor_abort(skrull_chunk_executor* executor,
                                    const char* reason);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif  // SKRULL_CUDA_C_API_SKRULL_EXEC_CHUNKS_H_
