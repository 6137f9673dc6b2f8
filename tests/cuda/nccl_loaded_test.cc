// libskrull_comm_nccl.so takes the libnccl.so.2 that the process has loaded,
// wherever from and though its symbols are hidden: as a trainer's framework
// loads its own. Needs neither a GPU nor a driver.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "skrull/cuda/nccl/nccl_library.h"

int main() {
  using skrull::exec::NcclApi;
  using skrull::exec::NcclId;
  using skrull::exec::NcclResult;
  if (dlopen(SKRULL_TEST_NCCL_PATH, RTLD_NOW | RTLD_LOCAL) == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  const auto opened = skrull::exec::OpenNccl(SKRULL_COMM_NCCL_DIR);
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
    return 1;
  }
  NcclApi* const nccl = *opened;
  NcclId id{};
  const bool made = nccl->GetUniqueId(&id) == NcclResult::kSuccess;
  if (!made || !std::ranges::all_of(id, [](char c) { return c == 'L'; })) {
    std::fprintf(stderr, "the unique id is not the loaded library's\n");
    return 1;
  }
  const std::string text = nccl->ErrorText(NcclResult::kInvalidUsage);
  if (text != "the loaded library's error") {
    std::fprintf(stderr, "an error is '%s'\n", text.c_str());
    return 1;
  }
  return 0;
}
