/* A trainer in C11 of a sequence in three chunks, of which one keeps its
 * activations at a time, on one rank, against attention written out. */
#include <stdio.h>
#include <string.h>

#include "skrull/cuda/c_api/skrull_exec_chunks.h"
#include "skrull/tests/cuda/c_attention.h"

enum { kTokens = 11, kChunks = 3, kOperations = 8 };

/* What a chunk's rows hold; those of the last forward pass. */
typedef struct Rows {
  double q[kMaxRows][kDim], k[kMaxRows][kDim], v[kMaxRows][kDim];
  double o[kMaxRows][kDim], lse[kMaxRows], d_o[kMaxRows][kDim];
  double dq[kMaxRows][kDim], dk[kMaxRows][kDim], dv[kMaxRows][kDim];
  int32_t positions[kMaxRows];
  int64_t count;
} Rows;

static skrull_chunk_plan* make_plan(void) {
  /* Positions [0, 4), [4, 8) and [8, 11) of sequence 0. */
  const skrull_chunk chunks[kChunks] = {
      {.chunk = 0, .group_index = 0, .group_size = 3, .token_count = 4},
      {.chunk = 1, .group_index = 1, .group_size = 3, .token_count = 4},
      {.chunk = 2, .group_index = 2, .group_size = 3, .token_count = 3}};
  const skrull_segment segments[kChunks] = {{0, kTokens, 0, 1, 0, 4, 4, 4},
                                            {0, kTokens, 0, 1, 4, 8, 8, 8},
                                            {0, kTokens, 0, 1, 8, 11, 11, 11}};
  const int64_t offsets[kChunks + 1] = {0, 1, 2, 3};
  const skrull_chunk_operation operations[kOperations] = {
      {SKRULL_CHUNK_FORWARD_DISCARD, 0}, {SKRULL_CHUNK_FORWARD_DISCARD, 1},
      {SKRULL_CHUNK_FORWARD, 2},         {SKRULL_CHUNK_BACKWARD, 2},
      {SKRULL_CHUNK_RECOMPUTE, 1},       {SKRULL_CHUNK_BACKWARD, 1},
      {SKRULL_CHUNK_RECOMPUTE, 0},       {SKRULL_CHUNK_BACKWARD, 0}};
  const char digest[] =
      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  skrull_rank_chunk_plan share = {.struct_bytes = sizeof share,
                                  .digest = digest,
                                  .rank = 0,
                                  .ranks = 1,
                                  .chunk_count = kChunks,
                                  .operation_count = kOperations,
                                  .retained_chunks = 1,
                                  .chunks = chunks,
                                  .segment_offsets = offsets,
                                  .segments = segments,
                                  .operations = operations};
  skrull_chunk_plan* plan = NULL;
  TRY(skrull_chunk_plan_create(&share, &plan));
  return plan;
}

static void fill(const skrull_chunk_plan* plan, int32_t operation, Rows* rows) {
  TRY(skrull_chunk_plan_positions(plan, operation, rows->positions,
                                  rows->count));
  for (int64_t i = 0; i < rows->count; ++i) {
    for (int c = 0; c < kDim; ++c) {
      rows->q[i][c] = value(0, 0, rows->positions[i], c);
      rows->k[i][c] = value(1, 0, rows->positions[i], c);
      rows->v[i][c] = value(2, 0, rows->positions[i], c);
      rows->d_o[i][c] = value(3, 0, rows->positions[i], c);
    }
  }
}

static void run(skrull_chunk_executor* executor, const skrull_chunk_plan* plan,
                const skrull_chunk_step* step, void* stream, Rows* chunks) {
  int32_t count = 0;
  TRY(skrull_chunk_plan_operation_count(plan, &count));
  for (int32_t i = 0; i < count; ++i) {
    skrull_chunk_operation_info info = {.struct_bytes = sizeof info};
    TRY(skrull_chunk_plan_operation(plan, i, &info));
    Rows* rows = &chunks[info.chunk];
    rows->count = info.rows;
    skrull_forward_tensors forward = {
        .struct_bytes = sizeof forward,
        .q = tensor(&rows->q[0][0], info.rows, kDim),
        .k = tensor(&rows->k[0][0], info.rows, kDim),
        .v = tensor(&rows->v[0][0], info.rows, kDim),
        .o = tensor(&rows->o[0][0], info.rows, kDim),
        .lse = tensor(rows->lse, info.rows, 1)};
    if (info.pass != SKRULL_CHUNK_BACKWARD) {
      /* Nothing uses the rows any more: earlier calls are done. */
      TRY(skrull_chunk_executor_wait(executor, 60.0));
      memset(rows, 0, sizeof *rows);
      rows->count = info.rows;
      fill(plan, i, rows);
      TRY(skrull_chunk_executor_forward(executor, step, i, 0, &forward,
                                        stream));
      continue;
    }
    skrull_backward_tensors backward = {
        .struct_bytes = sizeof backward,
        .q = forward.q,
        .k = forward.k,
        .v = forward.v,
        .o = forward.o,
        .lse = forward.lse,
        .d_o = tensor(&rows->d_o[0][0], info.rows, kDim),
        .dq = tensor(&rows->dq[0][0], info.rows, kDim),
        .dk = tensor(&rows->dk[0][0], info.rows, kDim),
        .dv = tensor(&rows->dv[0][0], info.rows, kDim)};
    TRY(skrull_chunk_executor_backward(executor, step, i, 0, &backward,
                                       stream));
  }
  TRY(skrull_chunk_executor_wait(executor, 60.0));
}

int main(void) {
  skrull_device_options on = {
      .struct_bytes = sizeof on, .name = "cpu", .poison_buffers = 1};
  skrull_backend_options with = {
      .struct_bytes = sizeof with, .name = "cpu", .cpu_threads = 1};
  skrull_comm_options among = {
      .struct_bytes = sizeof among, .name = "in_process", .ranks = 1};
  skrull_chunk_executor_options how = {.struct_bytes = sizeof how,
                                       .scale = 0.5,
                                       .dtype = 3,
                                       .q_heads = 1,
                                       .kv_heads = 1,
                                       .head_dim = kDim,
                                       .deterministic = 1,
                                       .layer_count = 1};
  skrull_device* device = NULL;
  skrull_backend* backend = NULL;
  skrull_comm* comm = NULL;
  skrull_chunk_executor* executor = NULL;
  skrull_chunk_step* step = NULL;
  void* stream = NULL;
  TRY(skrull_device_create(&on, &device));
  TRY(skrull_device_create_stream(device, &stream));
  TRY(skrull_backend_create(&with, &backend));
  TRY(skrull_comm_create(&among, &comm));
  TRY(skrull_chunk_executor_create(&how, device, backend, comm, &executor));
  skrull_chunk_plan* plan = make_plan();
  TRY(skrull_chunk_executor_prepare(executor, plan, &step));
  /* What they were made into is enough from here on. */
  skrull_device_destroy(device);
  skrull_backend_destroy(backend);
  skrull_comm_destroy(comm);

  static Rows chunks[kChunks];
  run(executor, plan, step, stream, chunks);
  skrull_chunk_executor_destroy(executor);
  skrull_chunk_step_destroy(step);
  skrull_chunk_plan_destroy(plan);

  Dense dense;
  attend(0, kTokens, &dense);
  int failures = 0;
  int64_t rows = 0;
  for (int c = 0; c < kChunks; ++c) {
    for (int32_t i = 0; i < chunks[c].count; ++i, ++rows) {
      const int32_t p = chunks[c].positions[i];
      failures += differs("o", 0, p, chunks[c].o[i], dense.o[p]);
      failures += differs("dq", 0, p, chunks[c].dq[i], dense.dq[p]);
      failures += differs("dk", 0, p, chunks[c].dk[i], dense.dk[p]);
      failures += differs("dv", 0, p, chunks[c].dv[i], dense.dv[p]);
    }
  }
  if (rows != kTokens) {
    fprintf(stderr, "%d rows of %d\n", (int)rows, kTokens);
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
