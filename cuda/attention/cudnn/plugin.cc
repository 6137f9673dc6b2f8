// libskrull_backend_cudnn.so: the cudnn backend with its options from the
// environment and the cuda backend of the same directory to fall back to.
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "skrull/cuda/attention/cudnn/cudnn_attention.h"
#include "skrull/cuda/attention/cudnn/cudnn_library.h"
#include "skrull/cuda/backend_registry.h"

namespace skrull::exec::cudnn {
namespace {

Events* ProcessEvents() {
  static Events* const events = new Events(LogToStderr());
  return events;
}

// Where this library lies; empty if that has no name.
std::string OwnDirectory() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&skrull_cudnn_read_counters),
             &info) == 0) {
    return "";
  }
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

BackendResult Create() {
  const Result<CudnnOptions> options =
      OptionsFrom([](const char* name) { return std::getenv(name); });
  SKRULL_EXEC_RETURN_IF_ERROR(options.status());
  BackendOptions own;
  own.directory = OwnDirectory();
  return CreateCudnnAttention(*options, CudnnLibrary(),
                              CreateAttentionBackend("cuda", own),
                              ProcessEvents());
}

}  // namespace
}  // namespace skrull::exec::cudnn

extern "C" __attribute__((visibility("default"))) int32_t
skrull_cudnn_read_counters(skrull_cudnn_counters* counters) {
  if (counters == nullptr || counters->struct_bytes != sizeof(*counters)) {
    return static_cast<int32_t>(skrull::exec::StatusCode::kInvalidArgument);
  }
  *counters = {};
  counters->struct_bytes = sizeof(*counters);
  skrull::exec::cudnn::ProcessEvents()->AddTo(counters);
  return 0;
}

SKRULL_EXEC_DEFINE_BACKEND(skrull::exec::cudnn::Create);
