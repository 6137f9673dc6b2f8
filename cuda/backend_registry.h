// Attention backends by name: "cpu" is built in, all others are shared objects
// opened at run time, so that this library needs none of their libraries.
#ifndef SKRULL_CUDA_BACKEND_REGISTRY_H_
#define SKRULL_CUDA_BACKEND_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

struct BackendOptions {
  // Where lib<...>.so is looked for; empty: where the dynamic linker looks.
  std::string directory;
  // Of the cpu backend; 0 stands for the machine's.
  int cpu_threads = 0;
};

// Opens libskrull_backend_<name>.so for a name that is not built in. The
// library stays open until the process ends. The "user" backend has no name
// here: see user_backend.h. Errors: NOT_FOUND saying what is missing, which may
// be a library that the backend needs; UNSUPPORTED for a library of another
// interface version; INVALID_ARGUMENT for a name that is not [a-z0-9_]+; what
// the backend's own creation returns.
Result<std::unique_ptr<AttentionBackend>> CreateAttentionBackend(
    const std::string& name, const BackendOptions& options);

// What such a library exports, through SKRULL_EXEC_DEFINE_BACKEND.
//
// Grows with every change of attention_backend.h and what it includes: a
// library is only opened by the version that it was built with.
inline constexpr int32_t kBackendInterfaceVersion = 2;

using BackendResult = Result<std::unique_ptr<AttentionBackend>>;

// In one source file of the library; `create` is a function BackendResult().
#define SKRULL_EXEC_DEFINE_BACKEND(create)                                     \
  extern "C" {                                                                 \
  __attribute__((visibility(                                                   \
      "default"))) extern const int32_t skrull_backend_interface_version;      \
  const int32_t skrull_backend_interface_version =                             \
      ::skrull::exec::kBackendInterfaceVersion;                                \
  __attribute__((visibility("default"))) void skrull_create_attention_backend( \
      ::skrull::exec::BackendResult* result) {                                 \
    *result = create();                                                        \
  }                                                                            \
  }                                                                            \
  static_assert(true, "takes the semicolon")

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_BACKEND_REGISTRY_H_
