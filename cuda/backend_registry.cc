#include "skrull/cuda/backend_registry.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "skrull/cuda/cpu/cpu_attention.h"

namespace skrull::exec {
namespace {

using CreateFunction = void (*)(BackendResult*);

bool IsName(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

Result<std::unique_ptr<AttentionBackend>> Open(const std::string& name,
                                               const std::string& directory) {
  std::string file = "libskrull_backend_" + name + ".so";
  if (!directory.empty()) file = directory + "/" + file;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status(StatusCode::kNotFound, "attention backend " + name +
                                             " is not there: " + dlerror() +
                                             ". Built in: cpu");
  }
  const auto* version = static_cast<const int32_t*>(
      dlsym(library, "skrull_backend_interface_version"));
  const auto create = reinterpret_cast<CreateFunction>(
      dlsym(library, "skrull_create_attention_backend"));
  if (version == nullptr || create == nullptr) {
    return Status(StatusCode::kUnsupported,
                  file + " exports no attention backend");
  }
  if (*version != kBackendInterfaceVersion) {
    return Status(StatusCode::kUnsupported,
                  file + " has interface version " + std::to_string(*version) +
                      ", where this is " +
                      std::to_string(kBackendInterfaceVersion));
  }
  BackendResult result(
      Status(StatusCode::kInternal, file + " created nothing"));
  create(&result);
  return result;
}

}  // namespace

Result<std::unique_ptr<AttentionBackend>> CreateAttentionBackend(
    const std::string& name, const BackendOptions& options) {
  if (!IsName(name)) {
    return InvalidArgument("'" + name + "' is no name of a backend");
  }
  if (name == "cpu") return CreateCpuAttention(options.cpu_threads);
  if (name == "user") {
    return InvalidArgument(
        "the user backend is made from a table, see CreateUserAttention");
  }
  return Open(name, options.directory);
}

}  // namespace skrull::exec
