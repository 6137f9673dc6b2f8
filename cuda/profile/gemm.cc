#include "skrull/cuda/profile/gemm.h"

#include "skrull/cuda/plugin.h"
#include "skrull/cuda/profile/cpu_gemm.h"

namespace skrull::profile {
namespace {

using CreateFunction = void (*)(int32_t ordinal, GemmResult*);

constexpr exec::PluginKind kGemm = {
    .what = "library of matrix products",
    .file_prefix = "skrull_gemm_",
    .version_symbol = "skrull_gemm_interface_version",
    .create_symbol = "skrull_create_gemm",
    .version = kGemmInterfaceVersion,
    .built_in = "cpu"};

}  // namespace

GemmResult CreateGemm(const std::string& name, const std::string& directory,
                      int32_t ordinal) {
  if (name == "cpu") return CreateCpuGemm();
  const exec::Result<void*> create = OpenPlugin(kGemm, name, directory);
  SKRULL_EXEC_RETURN_IF_ERROR(create.status());
  GemmResult result(exec::Status(exec::StatusCode::kInternal,
                                 "gemm " + name + " created nothing"));
  reinterpret_cast<CreateFunction>(*create)(ordinal, &result);
  return result;
}

}  // namespace skrull::profile
