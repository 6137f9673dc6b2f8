// Options of the cudnn backend. It is opened by name, without options, so they
// come from the environment.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_OPTIONS_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "skrull/cuda/status.h"

namespace skrull::exec::cudnn {

struct CudnnOptions {
  // SKRULL_CUDNN_PLAN_DIR: where plans are kept for the next process. Nobody
  // else may write there. Empty: nowhere.
  std::string plan_directory;

  // SKRULL_CUDNN_WORKSPACE_BYTES: what a call may use; >= 0. A backward pass
  // that needs more runs by groups of key heads, one after another; one that
  // needs more even for a single key head falls back.
  //
  // The default splits only calls that fill a GPU many times over. A group's
  // workspace is mostly float32 dK and dV of all its query heads, 8 * keys *
  // query heads * head_dim bytes; half a GiB of that is 4,096 tiles of 128 keys
  // at head_dim 128, 31 rounds of an H200's 132 multiprocessors, so the rounds
  // that are not full cost at most 3 %.
  int64_t workspace_bytes = int64_t{1} << 30;
};

// The value of an environment variable, or null.
using Environment = std::function<const char*(const char* name)>;

// Unset and empty variables leave the defaults. Errors: INVALID_ARGUMENT naming
// the variable and its value.
Result<CudnnOptions> OptionsFrom(const Environment& environment);

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_OPTIONS_H_
