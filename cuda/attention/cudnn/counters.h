/* What the cudnn backends of a process did, for those who opened
 * libskrull_backend_cudnn.so by name: dlsym skrull_cudnn_read_counters.
 */
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_COUNTERS_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_COUNTERS_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SKRULL_CUDNN_REASONS = 9 };

/* All only grow. */
typedef struct skrull_cudnn_counters {
  int64_t struct_bytes; /* set by the caller: sizeof, to tell versions apart */
  int64_t cudnn_calls;  /* forward and backward calls given to cuDNN */
  int64_t plans_built;
  int64_t plans_loaded; /* from disk */
  /* Calls given to another backend, by reason: 0 dtype, 1 head_dim,
   * 2 architecture, 3 version, 4 determinism, 5 segments, 6 layout,
   * 7 workspace, 8 no kernel. */
  int64_t fallback_calls[SKRULL_CUDNN_REASONS];
} skrull_cudnn_counters;

/* Returns 0, or 1 (INVALID_ARGUMENT) and changes nothing if counters is NULL or
 * struct_bytes is not that of the library. Thread-safe. */
int32_t skrull_cudnn_read_counters(skrull_cudnn_counters* counters);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_COUNTERS_H_
