// Uses skrull::exec_c, the executor's C interface, as an installed package.
#include <cstdio>

#include "skrull/cuda/c_api/skrull_exec.h"
#include "skrull/cuda/c_api/skrull_exec_chunks.h"

int main() {
  skrull_device_options options{};
  options.struct_bytes = sizeof(options);
  options.name = "cpu";
  skrull_device* device = nullptr;
  if (skrull_device_create(&options, &device) != SKRULL_OK) {
    std::printf("%s\n", skrull_exec_last_error());
    return 1;
  }
  skrull_device_destroy(device);
  skrull_chunk_plan_destroy(nullptr);
  return skrull_exec_version() == SKRULL_EXEC_VERSION ? 0 : 1;
}
