/* A trainer's own attention kernels as a table of C functions: the `user`
 * backend. C, so that a binding can fill it from any language.
 *
 * The meaning of problem, segments and tensors is that of
 * attention_backend.h; numbers of types, masks and codes are those of its
 * enumerations and of status.h.
 */
#ifndef SKRULL_CUDA_ATTENTION_TABLE_H_
#define SKRULL_CUDA_ATTENTION_TABLE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element (r, h, i) is at data + r * row_stride + h * head_stride + i, counted
 * in elements. */
typedef struct skrull_attention_tensor {
  void* data;
  int64_t rows;
  int64_t row_stride;
  int64_t head_stride;
  int32_t dtype; /* 0 float16, 1 bfloat16, 2 float32, 3 float64 */
  int32_t heads;
  int32_t dim;
  int32_t reserved; /* 0 */
} skrull_attention_tensor;

typedef struct skrull_attention_problem {
  int64_t struct_bytes; /* sizeof, to tell versions apart */
  double scale;
  int32_t dtype;
  int32_t q_heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t deterministic; /* 0 or 1 */
  int32_t reserved;      /* 0 */
} skrull_attention_problem;

typedef struct skrull_attention_bounds {
  int64_t struct_bytes;
  int64_t total_q;
  int64_t total_kv;
  int32_t segments;
  int32_t max_q;
  int32_t max_kv;
  int32_t mask; /* 0 causal, bottom-right; 1 none */
} skrull_attention_bounds;

/* One call. Backward fields are zero in a forward call. Valid during the
 * function only; the memory it points to, until the work is done. */
typedef struct skrull_attention_call {
  int64_t struct_bytes;
  skrull_attention_problem problem;
  skrull_attention_bounds bounds;
  const int32_t* cu_q; /* on the host, segments + 1 entries */
  const int32_t* cu_kv;
  const int32_t* device_cu_q;
  const int32_t* device_cu_kv;
  skrull_attention_tensor q, k, v, o, lse; /* o, lse: written by forward */
  skrull_attention_tensor d_o, dq, dk, dv; /* dq, dk, dv: overwritten */
  void* workspace;                         /* what `workspace` asked for */
  int64_t workspace_bytes;
  void* stream; /* cudaStream_t; NULL on the host */
} skrull_attention_call;

/* Functions return a status code, 0 for success, and may write a text of up to
 * message_bytes with its end mark. They must not throw. On CUDA, forward and
 * backward enqueue on the stream and return, and the executor's device is the
 * calling thread's current one in all but supports; on the host forward and
 * backward run when the stream gets there and return when they are done, at the
 * same time for several ranks that share the table. */
typedef struct skrull_attention_table {
  int64_t struct_bytes;
  void* context;        /* passed to every function; outlives the backend */
  const char* name;     /* for messages; NULL stands for "user" */
  int32_t memory;       /* 0 host, 1 CUDA */
  int32_t lse_order;    /* 0 any, 1 [rows, heads], 2 [heads, rows] */
  int32_t kv_tail_rows; /* that may be read behind k and v; 0 .. 4096 */
  int32_t reserved;     /* 0 */
  /* pass: 0 forward, 1 backward. NULL: every problem is supported. */
  int32_t (*supports)(void* context, const skrull_attention_problem* problem,
                      int32_t pass, char* message, int64_t message_bytes);
  /* Sets the bytes of workspace of calls within bounds. NULL: none needed. */
  int32_t (*workspace)(void* context, const skrull_attention_problem* problem,
                       const skrull_attention_bounds* bounds, int32_t pass,
                       int64_t* bytes, char* message, int64_t message_bytes);
  int32_t (*forward)(void* context, const skrull_attention_call* call,
                     char* message, int64_t message_bytes);
  int32_t (*backward)(void* context, const skrull_attention_call* call,
                      char* message, int64_t message_bytes);
} skrull_attention_table;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif  // SKRULL_CUDA_ATTENTION_TABLE_H_
