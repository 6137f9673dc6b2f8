// Shared objects that are opened by name at run time, so that this library
// needs none of theirs: attention backends, devices, NCCL.
#ifndef SKRULL_CUDA_PLUGIN_H_
#define SKRULL_CUDA_PLUGIN_H_

#include <cstdint>
#include <string>

#include "skrull/cuda/status.h"

namespace skrull::exec {

// One kind of them. All are literals.
struct PluginKind {
  const char* what;            // for messages: "attention backend"
  const char* file_prefix;     // of lib<file_prefix><name>.so
  const char* version_symbol;  // an int32_t that the library exports
  const char* create_symbol;   // a function that it exports
  int32_t version;             // the one that is opened
  const char* built_in;        // names that need no file, for messages; or ""
};

// Opens lib<file_prefix><name>.so, in `directory`, or where the dynamic linker
// looks if that is empty, and returns the address of its create_symbol. What
// the library itself needs is bound to what the process has loaded under the
// same SONAME, if there is such. It stays open until the process ends.
// Thread-safe. Errors: INVALID_ARGUMENT for a name that is not [a-z0-9_]+;
// NOT_FOUND saying what is missing, which may be a library that this one
// needs; UNSUPPORTED for a library of another kind or version.
Result<void*> OpenPlugin(const PluginKind& kind, const std::string& name,
                         const std::string& directory);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_PLUGIN_H_
