// Gemm on the CPU: float32, on the stream's own thread.
#ifndef SKRULL_CUDA_PROFILE_CPU_GEMM_H_
#define SKRULL_CUDA_PROFILE_CPU_GEMM_H_

#include <memory>

#include "skrull/cuda/profile/gemm.h"

namespace skrull::profile {

std::unique_ptr<Gemm> CreateCpuGemm();

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_CPU_GEMM_H_
