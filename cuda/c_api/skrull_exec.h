/* C interface of the executor (executor.h): attention over a rank plan, for
 * trainers in any language. libskrull_exec.so exports these functions alone.
 *
 * Example, one rank (checks of the codes left out):
 *   skrull_device_options on = {.struct_bytes = sizeof on, .name = "cpu"};
 *   skrull_device_create(&on, &device);
 *   skrull_device_create_stream(device, &stream);
 *   ... skrull_backend_create, skrull_comm_create, skrull_executor_create ...
 *   each step:
 *     skrull_plan_create(&rank_plan, &plan);
 *     skrull_plan_positions(plan, i, positions, rows);
 *     skrull_executor_prepare(executor, plan, &step);   (all ranks meet here)
 *     skrull_executor_forward(executor, step, i, &forward, stream);
 *     skrull_executor_backward(executor, step, i, &backward, stream);
 *     skrull_executor_wait(executor, 60.0);
 *
 * Errors. Functions return SKRULL_OK or another code of skrull_status_code,
 * and skrull_exec_last_error() then says what was wrong. A call that fails sets
 * no output. No C++ exception leaves. After a failure of skrull_executor_*,
 * prepare with FAILED_PRECONDITION apart, the executor only returns that
 * failure, and the other ranks' fail too: also where an argument was wrong,
 * since the other ranks have entered the same call.
 *
 * Versions. Every struct that may grow begins with struct_bytes, which the
 * caller sets to its sizeof. Fields are added at the end, and zero means what
 * was so before. Larger structs than this library knows are fine as long as
 * what it does not know is zero, else UNSUPPORTED; smaller ones end where an
 * older version's did, and ones smaller than the first version's are
 * INVALID_ARGUMENT. A reserved field that is not 0 is UNSUPPORTED. Functions
 * and codes are only ever added.
 *
 * Lifetime. *_create gives a handle that *_destroy releases; NULL is fine
 * there. Handles may be destroyed in any order and on any thread: what one was
 * made from lives on inside it. A handle must not be used after its own
 * destroy, nor during it. Options, plans' arrays and names are copied and may
 * go when the call returns; tensors' memory must stay until the stream has
 * passed the call; what a callback or a table of functions points to (context)
 * must outlive the handles that use it. An executor's destroy waits for its
 * work, so the other ranks must be able to finish theirs; a failed one's does
 * not wait for them.
 *
 * Threads. Different handles may be used by different threads at the same time.
 * One executor, and one communicator, takes one call at a time, except
 * skrull_executor_poll, _wait and _abort, which may come from any thread at any
 * time. Plans and steps are immutable and may be shared; devices and backends
 * may be shared by several ranks of a process.
 *
 * Compiles as C99 and later, and as C++.
 */
#ifndef SKRULL_CUDA_C_API_SKRULL_EXEC_H_
#define SKRULL_CUDA_C_API_SKRULL_EXEC_H_

#include <stdint.h>

#include "skrull/cuda/attention_table.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SKRULL_EXEC_VERSION 2

/* The version of the library: SKRULL_EXEC_VERSION of its header. */
int32_t skrull_exec_version(void);

enum skrull_status_code {
  SKRULL_OK = 0,
  SKRULL_INVALID_ARGUMENT = 1,    /* the caller's mistake; names the argument */
  SKRULL_FAILED_PRECONDITION = 2, /* the ranks hold different plans */
  SKRULL_UNSUPPORTED = 3,         /* the backend or this version cannot */
  SKRULL_OUT_OF_MEMORY = 4,
  SKRULL_PLAN_BUILD_FAILED = 5, /* the backend found no kernel */
  SKRULL_DEVICE_ERROR = 6,      /* a copy, kernel or stream failed */
  SKRULL_COMM_FAILED = 7,       /* a collective failed */
  SKRULL_ABORTED = 8,           /* another rank failed; says which */
  SKRULL_DEADLINE_EXCEEDED = 9, /* a rank did not come in time */
  SKRULL_NOT_FOUND = 10,        /* no such device, backend or communicator */
  SKRULL_INTERNAL = 11          /* a bug */
};

/* "INVALID_ARGUMENT" and so on; "UNKNOWN" for a number that is no code. */
const char* skrull_exec_status_name(int32_t code);

/* What the last call that failed on this thread said; "" if none did. UTF-8, at
 * most 1023 bytes, and valid until the next failure on this thread. */
const char* skrull_exec_last_error(void);

/* ---------------------------------------------------------------------------
 * Devices: memory and streams. */

typedef struct skrull_device skrull_device;

typedef struct skrull_device_options {
  int64_t struct_bytes;
  /* "cpu", or NAME of a libskrull_device_NAME.so. */
  const char* name;
  int32_t poison_buffers; /* 1: fill new buffers with NaN, to find bugs */
  int32_t ordinal;        /* which of the machine's; there is one "cpu", 0 */
  /* Since version 2. */
  const char* directory; /* of that library; NULL: the dynamic linker looks */
} skrull_device_options;

/* Errors: NOT_FOUND saying what is missing; UNSUPPORTED for a library of
 * another version; INVALID_ARGUMENT if the machine has no such ordinal. */
int32_t skrull_device_create(const skrull_device_options* options,
                             skrull_device** device);
void skrull_device_destroy(skrull_device* device);

/* A stream for calls on this device. On the host, where no other library has
 * streams, it is a thread that runs what calls enqueue. */
int32_t skrull_device_create_stream(skrull_device* device, void** stream);
/* Waits for the work on it. Streams left over are destroyed with the device. */
int32_t skrull_device_destroy_stream(skrull_device* device, void* stream);
/* Blocks until the work on the stream is done. Errors: the device's first
 * failure. */
int32_t skrull_device_synchronize(skrull_device* device, void* stream);

/* ---------------------------------------------------------------------------
 * Attention backends. */

typedef struct skrull_backend skrull_backend;

typedef struct skrull_backend_options {
  int64_t struct_bytes;
  /* "cpu", or NAME of a libskrull_backend_NAME.so. */
  const char* name;
  const char* directory; /* of that library; NULL: the dynamic linker looks */
  int32_t cpu_threads;   /* of the cpu backend; 0: the machine's */
  int32_t reserved;      /* 0 */
} skrull_backend_options;

/* Errors: NOT_FOUND saying what is missing; UNSUPPORTED for a library of
 * another version. */
int32_t skrull_backend_create(const skrull_backend_options* options,
                              skrull_backend** backend);
/* The trainer's own kernels (attention_table.h). The table is copied. */
int32_t skrull_backend_create_user(const skrull_attention_table* table,
                                   skrull_backend** backend);
void skrull_backend_destroy(skrull_backend* backend);

/* What a backend asks of the tensors of an executor's calls. */
typedef struct skrull_backend_info {
  int64_t struct_bytes; /* set by the caller */
  int32_t lse_order;    /* 0 any, 1 [rows, heads], 2 [heads, rows] */
  /* Rows behind the last one of k and v that it may read: memory that is
   * there, of finite numbers, whatever they are. */
  int32_t kv_tail_rows;
} skrull_backend_info;

/* Since version 2. */
int32_t skrull_backend_describe(const skrull_backend* backend,
                                skrull_backend_info* info);

/* ---------------------------------------------------------------------------
 * Communicators: one rank's way to the others. */

typedef struct skrull_comm skrull_comm;

/* Gives every rank what rank 0 offers (rendezvous.h). Rank 0 passes its offer,
 * the others 0 bytes. *answer_bytes comes in as what `answer` holds, 4096, and
 * goes out as what was written. Blocks until all ranks called it, or a
 * deadline. Returns a code, and may write a text with its end mark. Must not
 * throw. */
typedef int32_t (*skrull_rendezvous)(void* context, const char* offer,
                                     int64_t offer_bytes, char* answer,
                                     int64_t* answer_bytes, char* message,
                                     int64_t message_bytes);

typedef struct skrull_comm_options {
  int64_t struct_bytes;
  /* "in_process": all ranks are threads of this process. "host": processes on
   * CPUs, connected by TCP; the messages are neither encrypted nor signed.
   * "nccl": processes with a GPU each, by NCCL, and a pool as "host" beside it
   * for all that is not rows; from libskrull_comm_nccl.so, which takes the
   * libnccl.so.2 that the process has loaded, or else the linker's. */
  const char* name;
  int32_t rank;  /* 0 .. ranks - 1 */
  int32_t ranks; /* in the pool, >= 1 */
  /* How long a rank waits for the others, in a collective and until all are
   * connected; nccl: also for NCCL. 0: 60 s. */
  double time_limit_seconds;
  /* in_process: NULL makes a pool; the communicator of any rank of a pool joins
   * that one. Each rank once. */
  const skrull_comm* peer;
  /* host, nccl: an address of this machine that the other ranks reach. NULL:
   * 127.0.0.1. */
  const char* host;
  /* host, nccl: how ranks find each other, e.g. the planner's Rendezvous.
   * Called once, during skrull_comm_create alone, which is collective then. */
  skrull_rendezvous rendezvous;
  void* rendezvous_context;
  /* Since version 2. */
  /* nccl: of libskrull_comm_nccl.so; NULL: the dynamic linker looks. */
  const char* directory;
  int32_t device_ordinal; /* nccl: the rank's CUDA device */
  /* nccl: 0: buffers are registered as symmetric windows, for NCCL's fastest
   * kernels and copy engines, where NCCL and the machine have them. 1: they are
   * plain memory. */
  int32_t plain_buffers;
} skrull_comm_options;

/* Errors: NOT_FOUND for an unknown name, or saying which library is missing;
 * UNSUPPORTED for a library of another version. A rank that fails once all are
 * connected makes the others' creation fail too. */
int32_t skrull_comm_create(const skrull_comm_options* options,
                           skrull_comm** comm);
void skrull_comm_destroy(skrull_comm* comm);

/* ---------------------------------------------------------------------------
 * Rank plans: one rank's share of a plan (skrull.v1.RankPlan), and what a
 * trainer must know of it. Needs no device and no other rank. */

typedef struct skrull_plan skrull_plan;

/* The rank's part of one sequence. Local (degree 1): low is the whole sequence,
 * high empty. Half-open ranges of positions. */
typedef struct skrull_segment {
  int32_t sequence; /* index in the global batch */
  int32_t token_count;
  int32_t first_rank;
  int32_t degree;
  int64_t low_begin;
  int64_t low_end;
  int64_t high_begin;
  int64_t high_end;
} skrull_segment;

typedef struct skrull_rank_plan {
  int64_t struct_bytes;
  const char* digest; /* of the whole plan, 64 hexadecimal digits */
  int32_t rank;
  int32_t ranks; /* in the pool */
  int32_t micro_batch_count;
  int32_t block_count;
  /* Segments of micro-batch i: [segment_offsets[i], segment_offsets[i + 1]), in
   * row order. micro_batch_count + 1 entries, from 0. */
  const int64_t* segment_offsets;
  const skrull_segment* segments;
  /* Of each micro-batch over all ranks. */
  const int64_t* token_counts;
  /* The rank's share of the batch's loss. NULL: its rows over the sum of
   * token_counts. */
  const double* token_weights;
  /* first_rank, degree of every communicator of the whole plan. */
  const int32_t* blocks;
} skrull_rank_plan;

/* Errors: INVALID_ARGUMENT naming the micro-batch and the segment that is no
 * rank's share of any plan. */
int32_t skrull_plan_create(const skrull_rank_plan* rank_plan,
                           skrull_plan** plan);
void skrull_plan_destroy(skrull_plan* plan);

int32_t skrull_plan_micro_batch_count(const skrull_plan* plan, int32_t* count);

typedef struct skrull_micro_batch_info {
  int64_t struct_bytes;     /* set by the caller */
  int64_t rows;             /* of q, k, v on this rank */
  int64_t local_rows;       /* the first of them, of local sequences */
  int64_t cu_seqlens_count; /* entries of skrull_plan_cu_seqlens */
  int64_t max_seqlen;       /* longest attention segment, rows */
  int64_t block_count;      /* blocks that this rank exchanges with */
  int64_t token_count;      /* over all ranks */
  double token_weight;
} skrull_micro_batch_info;

/* For all below. Errors: INVALID_ARGUMENT if there is no such micro-batch, or
 * if `count` is not the number of entries. */
int32_t skrull_plan_micro_batch(const skrull_plan* plan, int32_t micro_batch,
                                skrull_micro_batch_info* info);
/* Position of each row in its sequence: position_ids. `count` is rows. */
int32_t skrull_plan_positions(const skrull_plan* plan, int32_t micro_batch,
                              int32_t* positions, int64_t count);
/* Index of each row's sequence in the global batch. `count` is rows. */
int32_t skrull_plan_sequences(const skrull_plan* plan, int32_t micro_batch,
                              int32_t* sequences, int64_t count);
/* Row offsets of attention segments: one a local sequence, two a sharded one
 * (low, high; empty ones left out). `count` is cu_seqlens_count. */
int32_t skrull_plan_cu_seqlens(const skrull_plan* plan, int32_t micro_batch,
                               int32_t* cu_seqlens, int64_t count);

/* ---------------------------------------------------------------------------
 * Execution. */

typedef struct skrull_executor skrull_executor;
typedef struct skrull_step skrull_step;

/* Contributes the 32 bytes `mine` and fills `all`, 32 bytes a rank of the pool,
 * in rank order; returns a code, and may write a text of up to message_bytes
 * with its end mark. Blocks until all ranks called it, or a deadline. Must not
 * throw. */
typedef int32_t (*skrull_gather_digests)(void* context, const uint8_t* mine,
                                         uint8_t* all, char* message,
                                         int64_t message_bytes);

typedef struct skrull_executor_options {
  int64_t struct_bytes;
  double scale;          /* of q.k before the softmax */
  int32_t dtype;         /* 0 float16, 1 bfloat16, 2 float32, 3 float64 */
  int32_t q_heads;       /* a multiple of kv_heads */
  int32_t kv_heads;      /* >= 1 */
  int32_t head_dim;      /* >= 1 */
  int32_t deterministic; /* 1: equal calls give equal bits */
  int32_t exchange;      /* 0 all-gather, 1 ring */
  /* What dK, dV travel in. 0: dtype (ring: the accumulator's type). 1: the
   * accumulator's type, float32, or float64 of float64. */
  int32_t grad_comm_accumulator;
  int32_t reserved; /* 0 */
  /* How ranks compare plans. NULL: through the communicator. */
  skrull_gather_digests gather_digests;
  void* gather_context;
} skrull_executor_options;

/* device, backend and comm must be of the same memory: the host's, or CUDA's.
 * Errors: INVALID_ARGUMENT naming the option; UNSUPPORTED by the backend. Does
 * not meet the other ranks: a rank that fails here calls skrull_comm_abort
 * unless it tries again. */
int32_t skrull_executor_create(const skrull_executor_options* options,
                               skrull_device* device, skrull_backend* backend,
                               skrull_comm* comm, skrull_executor** executor);
void skrull_executor_destroy(skrull_executor* executor);

/* Makes every rank that waits for this one, now or later, fail with ABORTED and
 * the reason. */
int32_t skrull_comm_abort(skrull_comm* comm, const char* reason);

/* Agrees with all ranks of the pool on the plan and makes it ready. Collective.
 * `plan` NULL: this rank got none; all ranks then fail. Errors:
 * FAILED_PRECONDITION on every rank, before any exchange, if they hold
 * different plans; the executor can then prepare another one. */
int32_t skrull_executor_prepare(skrull_executor* executor,
                                const skrull_plan* plan, skrull_step** step);
void skrull_step_destroy(skrull_step* step);

/* Shapes: q, o [rows, q_heads, head_dim]; k, v [rows, kv_heads, head_dim]; lse
 * [rows, q_heads, 1] float32 (float64 of float64), natural logarithm, in the
 * order that skrull_backend_describe tells. Behind k and v lie its kv_tail_rows
 * rows, each as far from the last as rows are. */
typedef struct skrull_forward_tensors {
  int64_t struct_bytes;
  skrull_attention_tensor q, k, v; /* only read */
  skrull_attention_tensor o, lse;  /* every row is written */
} skrull_forward_tensors;

typedef struct skrull_backward_tensors {
  int64_t struct_bytes;
  skrull_attention_tensor q, k, v, o, lse, d_o; /* only read */
  skrull_attention_tensor dq, dk, dv;           /* every row is overwritten */
} skrull_backward_tensors;

/* Enqueues one layer's attention of one micro-batch on the stream (a
 * cudaStream_t, or one of skrull_device_create_stream) and returns. Every rank
 * calls the same, in the same order, also with no rows. */
int32_t skrull_executor_forward(skrull_executor* executor,
                                const skrull_step* step, int32_t micro_batch,
                                const skrull_forward_tensors* tensors,
                                void* stream);
int32_t skrull_executor_backward(skrull_executor* executor,
                                 const skrull_step* step, int32_t micro_batch,
                                 const skrull_backward_tensors* tensors,
                                 void* stream);

/* The first failure, also of work that runs, or OK. Does not block. */
int32_t skrull_executor_poll(skrull_executor* executor);
/* Blocks until the work of earlier calls is done; after `seconds` it fails the
 * executor with DEADLINE_EXCEEDED. 0 <= seconds <= 1e6. */
int32_t skrull_executor_wait(skrull_executor* executor, double seconds);
/* Fails the executor, and the other ranks', with ABORTED and the reason (NULL:
 * none). No effect if it failed before. Returns OK. */
int32_t skrull_executor_abort(skrull_executor* executor, const char* reason);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif  // SKRULL_CUDA_C_API_SKRULL_EXEC_H_
