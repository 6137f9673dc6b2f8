/* A trainer in C11: two ranks, one sharded and two local sequences, forward and
 * backward, against attention written out. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "skrull/cuda/c_api/skrull_exec.h"
#include "skrull/tests/cuda/c_attention.h"

enum { kRanks = 2, kSequences = 3 };

/* Sequence 0 is local to rank 0, 1 to rank 1, and 2 is sharded: chunks of 2
 * tokens, of which rank 0 holds the first and the last. */
static const int32_t kTokens[kSequences] = {3, 2, 8};

typedef struct Rank {
  int32_t rank;
  skrull_comm* comm;
  int32_t rows;
  int32_t positions[kMaxRows];
  int32_t sequences[kMaxRows];
  double o[kMaxRows][kDim];
  double dq[kMaxRows][kDim];
  double dk[kMaxRows][kDim];
  double dv[kMaxRows][kDim];
} Rank;

static void* run(void* argument) {
  Rank* me = argument;
  skrull_device_options on = {
      .struct_bytes = sizeof on, .name = "cpu", .poison_buffers = 1};
  skrull_backend_options with = {
      .struct_bytes = sizeof with, .name = "cpu", .cpu_threads = 1};
  skrull_executor_options how = {.struct_bytes = sizeof how,
                                 .scale = 0.5,
                                 .dtype = 3,
                                 .q_heads = 1,
                                 .kv_heads = 1,
                                 .head_dim = kDim,
                                 .deterministic = 1};
  const skrull_segment segments[2][2] = {
      {{0, 3, 0, 1, 0, 3, 3, 3}, {2, 8, 0, 2, 0, 2, 6, 8}},
      {{1, 2, 1, 1, 0, 2, 2, 2}, {2, 8, 0, 2, 2, 4, 4, 6}}};
  const int64_t offsets[2] = {0, 2};
  const int64_t token_counts[1] = {13};
  const int32_t blocks[2] = {0, 2};
  const char digest[] =
      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  skrull_rank_plan share = {.struct_bytes = sizeof share,
                            .digest = digest,
                            .rank = me->rank,
                            .ranks = kRanks,
                            .micro_batch_count = 1,
                            .block_count = 1,
                            .segment_offsets = offsets,
                            .segments = segments[me->rank],
                            .token_counts = token_counts,
                            .blocks = blocks};
  skrull_device* device = NULL;
  skrull_backend* backend = NULL;
  skrull_executor* executor = NULL;
  skrull_plan* plan = NULL;
  skrull_step* step = NULL;
  void* stream = NULL;
  TRY(skrull_device_create(&on, &device));
  TRY(skrull_device_create_stream(device, &stream));
  TRY(skrull_backend_create(&with, &backend));
  TRY(skrull_executor_create(&how, device, backend, me->comm, &executor));
  TRY(skrull_plan_create(&share, &plan));

  skrull_micro_batch_info info = {.struct_bytes = sizeof info};
  TRY(skrull_plan_micro_batch(plan, 0, &info));
  me->rows = (int32_t)info.rows;
  TRY(skrull_plan_positions(plan, 0, me->positions, info.rows));
  TRY(skrull_plan_sequences(plan, 0, me->sequences, info.rows));
  TRY(skrull_executor_prepare(executor, plan, &step));

  double q[kMaxRows][kDim], k[kMaxRows][kDim], v[kMaxRows][kDim];
  double d_o[kMaxRows][kDim], lse[kMaxRows];
  for (int32_t i = 0; i < me->rows; ++i) {
    for (int c = 0; c < kDim; ++c) {
      const int32_t s = me->sequences[i], p = me->positions[i];
      q[i][c] = value(0, s, p, c);
      k[i][c] = value(1, s, p, c);
      v[i][c] = value(2, s, p, c);
      d_o[i][c] = value(3, s, p, c);
    }
  }
  skrull_forward_tensors forward = {.struct_bytes = sizeof forward,
                                    .q = tensor(&q[0][0], info.rows, kDim),
                                    .k = tensor(&k[0][0], info.rows, kDim),
                                    .v = tensor(&v[0][0], info.rows, kDim),
                                    .o = tensor(&me->o[0][0], info.rows, kDim),
                                    .lse = tensor(lse, info.rows, 1)};
  skrull_backward_tensors backward = {
      .struct_bytes = sizeof backward,
      .q = forward.q,
      .k = forward.k,
      .v = forward.v,
      .o = forward.o,
      .lse = forward.lse,
      .d_o = tensor(&d_o[0][0], info.rows, kDim),
      .dq = tensor(&me->dq[0][0], info.rows, kDim),
      .dk = tensor(&me->dk[0][0], info.rows, kDim),
      .dv = tensor(&me->dv[0][0], info.rows, kDim)};
  TRY(skrull_executor_forward(executor, step, 0, &forward, stream));
  TRY(skrull_executor_backward(executor, step, 0, &backward, stream));
  TRY(skrull_executor_wait(executor, 60.0));

  /* Not the order in which they were made. */
  skrull_device_destroy(device);
  skrull_backend_destroy(backend);
  skrull_comm_destroy(me->comm);
  skrull_plan_destroy(plan);
  skrull_executor_destroy(executor);
  skrull_step_destroy(step);
  return NULL;
}

int main(void) {
  Rank ranks[kRanks];
  pthread_t threads[kRanks];
  memset(ranks, 0, sizeof ranks);
  for (int32_t r = 0; r < kRanks; ++r) {
    skrull_comm_options options = {.struct_bytes = sizeof options,
                                   .name = "in_process",
                                   .rank = r,
                                   .ranks = kRanks,
                                   .peer = r == 0 ? NULL : ranks[0].comm};
    ranks[r].rank = r;
    TRY(skrull_comm_create(&options, &ranks[r].comm));
  }
  for (int r = 0; r < kRanks; ++r) {
    if (pthread_create(&threads[r], NULL, run, &ranks[r]) != 0) return 1;
  }
  for (int r = 0; r < kRanks; ++r) pthread_join(threads[r], NULL);

  Dense dense[kSequences];
  for (int32_t s = 0; s < kSequences; ++s) attend(s, kTokens[s], &dense[s]);
  int failures = 0, rows = 0;
  for (int r = 0; r < kRanks; ++r) {
    for (int32_t i = 0; i < ranks[r].rows; ++i, ++rows) {
      const Dense* want = &dense[ranks[r].sequences[i]];
      const int32_t p = ranks[r].positions[i];
      failures += differs("o", r, i, ranks[r].o[i], want->o[p]);
      failures += differs("dq", r, i, ranks[r].dq[i], want->dq[p]);
      failures += differs("dk", r, i, ranks[r].dk[i], want->dk[p]);
      failures += differs("dv", r, i, ranks[r].dv[i], want->dv[p]);
    }
  }
  if (rows != 13) {
    fprintf(stderr, "%d rows of 13\n", rows);
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
