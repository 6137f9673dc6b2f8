// The `user` attention backend: calls a trainer's own functions.
#ifndef SKRULL_CUDA_USER_BACKEND_H_
#define SKRULL_CUDA_USER_BACKEND_H_

#include <memory>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/attention_table.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

// Copies the table; its context and name outlive the backend. A code that a
// function returns becomes the Status, with the table's name before its
// message; a number that is no code becomes INTERNAL. Errors: INVALID_ARGUMENT
// naming the field.
Result<std::unique_ptr<AttentionBackend>> CreateUserAttention(
    const skrull_attention_table& table);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_USER_BACKEND_H_
