#include "skrull/cuda/plugin.h"

#include <dlfcn.h>

#include <algorithm>

namespace skrull::exec {
namespace {

bool IsName(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

Result<void*> OpenPlugin(const PluginKind& kind, const std::string& name,
                         const std::string& directory) {
  const std::string what = kind.what;
  if (!IsName(name))
    return InvalidArgument(what + ": '" + name + "' is no name");
  std::string file = std::string("lib") + kind.file_prefix + name + ".so";
  if (!directory.empty()) file = directory + "/" + file;
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::string message = what + " " + name + " is not there: " + dlerror();
    if (*kind.built_in != '\0') {
      message += std::string(". Built in: ") + kind.built_in;
    }
    return Status(StatusCode::kNotFound, std::move(message));
  }
  const auto* version =
      static_cast<const int32_t*>(dlsym(library, kind.version_symbol));
  void* const create = dlsym(library, kind.create_symbol);
  if (version == nullptr || create == nullptr) {
    return Status(StatusCode::kUnsupported, file + " exports no " + what);
  }
  if (*version != kind.version) {
    return Status(StatusCode::kUnsupported,
                  file + " has interface version " + std::to_string(*version) +
                      ", where this is " + std::to_string(kind.version));
  }
  return create;
}

}  // namespace skrull::exec
