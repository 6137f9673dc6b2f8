// The `cpu` attention backend: blocked_attention.h behind AttentionBackend.
#ifndef SKRULL_CUDA_CPU_CPU_ATTENTION_H_
#define SKRULL_CUDA_CPU_CPU_ATTENTION_H_

#include <memory>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

// `threads` >= 0 work on each call; 0 stands for the machine's. Supports every
// problem and is always deterministic, whatever the number of threads. Several
// ranks may share one. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
Result<std::unique_ptr<AttentionBackend>> CreateCpuAttention(int threads);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CPU_CPU_ATTENTION_H_
