// What the check needs of the CUDA runtime and no part of the executor does.
// One implementation is built with the CUDA Toolkit, one without.
#ifndef SKRULL_CUDA_CHECK_CUDA_ACCESS_H_
#define SKRULL_CUDA_CHECK_CUDA_ACCESS_H_

#include <cstdint>
#include <nlohmann/json.hpp>

#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"

namespace skrull::check {

// Copies `bytes` of `memory` to the host before it returns. REQUIRES: the work
// that writes them is done. Errors: UNSUPPORTED for CUDA memory where this was
// built without the CUDA Toolkit; DEVICE_ERROR.
exec::Status CopyToHost(void* dst, const void* src, int64_t bytes,
                        exec::MemoryKind memory);

// "gpu", "compute_capability", "multiprocessors", "memory_bytes",
// "driver" and "runtime" of the GPU with this ordinal, whose versions are those
// of CUDA; or "gpu" alone, why there is none.
nlohmann::ordered_json DescribeGpu(int32_t ordinal);

}  // namespace skrull::check

#endif  // SKRULL_CUDA_CHECK_CUDA_ACCESS_H_
