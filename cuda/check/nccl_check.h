// NCCL with one rank: what a single GPU can tell of it.
#ifndef SKRULL_CUDA_CHECK_NCCL_CHECK_H_
#define SKRULL_CUDA_CHECK_NCCL_CHECK_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "skrull/cuda/check/report.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/nccl/nccl_api.h"

namespace skrull::check {

// Of each call of NCCL, so that one that hangs does not cost the run.
inline constexpr std::chrono::seconds kNcclLimit(20);

// Section `nccl`, by NcclPool on the device with this ordinal: init,
// registration, all-gather, reduce-scatter and shift with the right bytes on a
// stream of high priority, and an abort while nothing runs. The first failure
// ends it. REQUIRES: `device` works in the memory of `api`.
void CheckNccl(exec::Device* device, exec::NcclApi* api, int32_t ordinal,
               CheckReport* report);

// The same with the table of libskrull_comm_nccl.so in `directory`, or where
// the dynamic linker looks. Skipped, saying why, on other memory than CUDA's
// and where the table or what it needs is missing.
void CheckInstalledNccl(exec::Device* device, const std::string& directory,
                        int32_t ordinal, CheckReport* report);

}  // namespace skrull::check

#endif  // SKRULL_CUDA_CHECK_NCCL_CHECK_H_
