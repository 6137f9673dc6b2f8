#include "skrull/cuda/check/library_versions.h"

#include <dlfcn.h>

#include <cstddef>

namespace skrull::check {
namespace {

// The address of a function of a library, or null and why. The library stays
// open, since closing one that uses a GPU is not always safe.
void* FindFunction(const char* library, const char* function,
                   std::string* problem) {
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  void* const found = opened == nullptr ? nullptr : dlsym(opened, function);
  if (found == nullptr) *problem = std::string("not found: ") + dlerror();
  return found;
}

std::string NcclVersion() {
  std::string text;
  auto* const get = reinterpret_cast<int (*)(int*)>(
      FindFunction("libnccl.so.2", "ncclGetVersion", &text));
  if (get == nullptr) return text;
  int version = 0;
  return get(&version) == 0 ? NcclVersionText(version)
                            : "ncclGetVersion failed";
}

std::string CudnnVersion() {
  std::string text;
  auto* const get = reinterpret_cast<size_t (*)()>(
      FindFunction("libcudnn.so.9", "cudnnGetVersion", &text));
  return get == nullptr ? text : CudnnVersionText(static_cast<int64_t>(get()));
}

// major * `unit` + minor * 100 + patch.
std::string Text(int64_t version, int64_t unit) {
  return std::to_string(version / unit) + "." +
         std::to_string(version % unit / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

nlohmann::ordered_json LibraryVersions() {
  return {{"nccl", NcclVersion()}, {"cudnn", CudnnVersion()}};
}

std::string NcclVersionText(int64_t version) {
  return Text(version, version < 10000 ? 1000 : 10000);  // since 2.9
}

std::string CudnnVersionText(int64_t version) {
  return Text(version, version < 10000 ? 1000 : 10000);  // since 9.0
}

}  // namespace skrull::check
