#include "skrull/cuda/nccl/nccl_library.h"

#include "skrull/cuda/plugin.h"

namespace skrull::exec {
namespace {

using TableFunction = NcclApi* (*)();

constexpr PluginKind kComm = {.what = "communicator",
                              .file_prefix = "skrull_comm_",
                              .version_symbol = "skrull_nccl_interface_version",
                              .create_symbol = "skrull_nccl_table",
                              .version = kNcclInterfaceVersion,
                              .built_in = ""};

}  // namespace

Result<NcclApi*> OpenNccl(const std::string& directory) {
  const Result<void*> table = OpenPlugin(kComm, "nccl", directory);
  SKRULL_EXEC_RETURN_IF_ERROR(table.status());
  return reinterpret_cast<TableFunction>(*table)();
}

}  // namespace skrull::exec
