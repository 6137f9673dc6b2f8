// Device::Sum, launched: on a stream of a GPU, or under cuda/sim of a device
// with host memory.
#ifndef SKRULL_CUDA_KERNELS_SUM_H_
#define SKRULL_CUDA_KERNELS_SUM_H_

#include <cstdint>
#include <span>

#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::internal {

// Shapes: dst [count], addends[k] [count]. Accesses have 16 bytes where all of
// them are so aligned; the bits are the same. Errors: INVALID_ARGUMENT for what
// row_checks.h refuses and for 2^36 elements and more; DEVICE_ERROR if the
// launch is refused.
Status LaunchSum(void* dst, std::span<const void* const> addends, int64_t count,
                 DType dtype, Stream stream);

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_KERNELS_SUM_H_
