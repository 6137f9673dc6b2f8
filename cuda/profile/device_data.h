// Memory of a device with values in it, for work that is timed.
#ifndef SKRULL_CUDA_PROFILE_DEVICE_DATA_H_
#define SKRULL_CUDA_PROFILE_DEVICE_DATA_H_

#include <cstdint>

#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"
#include "skrull/cuda/tensor.h"

namespace skrull::profile {

// `elements` of `dtype`, uniform in [-1, 1): the power that a GPU draws, and so
// its clock, depends on the values. They repeat after 2^16, and are the same in
// every call. Errors: those of the device.
exec::Result<exec::Buffer> RandomBuffer(exec::Device* device, exec::DType dtype,
                                        int64_t elements);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_DEVICE_DATA_H_
