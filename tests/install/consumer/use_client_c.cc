// Uses skrull::client_c, the clients' C interface, as an installed package.
#include <cstdio>

#include "skrull/c_api/skrull_client.h"

int main() {
  skrull_client_planner_options options{};
  options.struct_bytes = sizeof(options);
  options.job_spec_text =
      "model { hidden_size: 64 layer_count: 2 attention_head_count: 4 }"
      "memory { bucket_size_tokens: 100 }";
  skrull_client_planner* planner = nullptr;
  if (skrull_client_planner_create(&options, &planner) != SKRULL_CLIENT_OK) {
    skrull_client_error error{};
    error.struct_bytes = sizeof(error);
    skrull_client_last_error(&error);
    std::printf("%s\n", error.message);
    return 1;
  }
  skrull_client_planner_destroy(planner);
  return skrull_client_version() == SKRULL_CLIENT_VERSION ? 0 : 1;
}
