// NCCL, opened at run time: libskrull_comm_nccl.so holds the table of its entry
// points and needs libnccl.so.2 and the CUDA runtime, so that nothing else
// does.
#ifndef SKRULL_CUDA_NCCL_NCCL_LIBRARY_H_
#define SKRULL_CUDA_NCCL_NCCL_LIBRARY_H_

#include <cstdint>
#include <string>

#include "skrull/cuda/nccl/nccl_api.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

// The table of libskrull_comm_nccl.so in `directory`, or where the dynamic
// linker looks if that is empty. A process that has loaded a libnccl.so.2, as
// PyTorch does, has the table of that one. It lives as long as the process, and
// is the same in every call. Thread-safe. Errors: NOT_FOUND saying what is
// missing: that library, libnccl.so.2, the CUDA runtime, or a function that the
// loaded NCCL is too old for; UNSUPPORTED for a library of another interface
// version.
Result<NcclApi*> OpenNccl(const std::string& directory);

// What the library exports, through SKRULL_EXEC_DEFINE_NCCL.
//
// Grows with every change of nccl_api.h and what it includes: a library is only
// opened by the version that it was built with.
inline constexpr int32_t kNcclInterfaceVersion = 1;

// In one source file of the library; `table` is a function NcclApi*(), which
// throws nothing and never returns null.
#define SKRULL_EXEC_DEFINE_NCCL(table)                                 \
  extern "C" {                                                         \
  __attribute__((visibility(                                           \
      "default"))) extern const int32_t skrull_nccl_interface_version; \
  const int32_t skrull_nccl_interface_version =                        \
      ::skrull::exec::kNcclInterfaceVersion;                           \
  __attribute__((visibility("default"))) ::skrull::exec::NcclApi*      \
  skrull_nccl_table() {                                                \
    return table();                                                    \
  }                                                                    \
  }                                                                    \
  static_assert(true, "takes the semicolon")

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_NCCL_NCCL_LIBRARY_H_
