// CudnnApi over the cuDNN and the CUDA runtime that this build links.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_CUDNN_LIBRARY_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_CUDNN_LIBRARY_H_

#include "skrull/cuda/attention/cudnn/cudnn_api.h"

namespace skrull::exec::cudnn {

// The process's one. Never destroyed, nor are its handles: when static objects
// are, the driver may be gone.
CudnnApi* CudnnLibrary();

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_CUDNN_LIBRARY_H_
