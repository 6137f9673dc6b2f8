// A GPU as a Device, by the CUDA runtime.
#ifndef SKRULL_CUDA_GPU_CUDA_DEVICE_H_
#define SKRULL_CUDA_GPU_CUDA_DEVICE_H_

#include "skrull/cuda/device_registry.h"

namespace skrull::exec {

// A Stream is a cudaStream_t, an Event a cudaEvent_t; the caller may bring
// streams of its own, of the same GPU. Memory comes from a pool of this device
// alone. Every call selects the GPU for its own length: the calling thread's
// current device stays as it is, or, where the process has not used that one
// yet, becomes this.
//
// A failure of CUDA's context (a kernel that accesses what it must not, an ECC
// error) is sticky: all later calls return it, also those of others in the
// process. Thread-safe as Device.
//
// Errors: NOT_FOUND if there is no driver or no GPU, saying which;
// INVALID_ARGUMENT for an ordinal that the machine does not have; UNSUPPORTED
// for a GPU older than compute capability 8.0, or without memory pools;
// DEVICE_ERROR with CUDA's text.
DeviceResult CreateCudaDevice(const DeviceOptions& options);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_GPU_CUDA_DEVICE_H_
