#include "skrull/cuda/backend_registry.h"

#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/plugin.h"

namespace skrull::exec {
namespace {

using CreateFunction = void (*)(BackendResult*);

constexpr PluginKind kBackend = {
    .what = "attention backend",
    .file_prefix = "skrull_backend_",
    .version_symbol = "skrull_backend_interface_version",
    .create_symbol = "skrull_create_attention_backend",
    .version = kBackendInterfaceVersion,
    .built_in = "cpu"};

}  // namespace

Result<std::unique_ptr<AttentionBackend>> CreateAttentionBackend(
    const std::string& name, const BackendOptions& options) {
  if (name == "cpu") return CreateCpuAttention(options.cpu_threads);
  if (name == "user") {
    return InvalidArgument(
        "the user backend is made from a table, see CreateUserAttention");
  }
  const Result<void*> create = OpenPlugin(kBackend, name, options.directory);
  SKRULL_EXEC_RETURN_IF_ERROR(create.status());
  BackendResult result(
      Status(StatusCode::kInternal, "backend " + name + " created nothing"));
  reinterpret_cast<CreateFunction>(*create)(&result);
  return result;
}

}  // namespace skrull::exec
