// The NCCL and CUDA runtime that this build links. Compiled where both are.
#ifndef SKRULL_CUDA_NCCL_NCCL_LIBRARY_H_
#define SKRULL_CUDA_NCCL_NCCL_LIBRARY_H_

#include "skrull/cuda/nccl/nccl_api.h"

namespace skrull::exec {

// Lives as long as the process.
NcclApi* NcclLibrary();

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_NCCL_NCCL_LIBRARY_H_
