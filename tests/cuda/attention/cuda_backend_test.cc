// libskrull_backend_cuda.so: it opens without a driver, and says what it lacks.
#include <catch2/catch.hpp>
#include <string>

#include "skrull/cuda/backend_registry.h"

namespace skrull::exec::testing {

TEST_CASE("cuda backend: opened by its name, with or without a GPU",
          "[flash][registry]") {
  const BackendResult backend = CreateAttentionBackend(
      "cuda", {.directory = SKRULL_CUDA_BACKEND_DIR, .cpu_threads = 1});
  if (backend.ok()) {
    CHECK((*backend)->name() == "cuda");
    CHECK((*backend)->memory() == MemoryKind::kCuda);
  } else {
    INFO(backend.status().ToString());
    CHECK(backend.status().code() == StatusCode::kDeviceError);
    CHECK(backend.status().message().find("finds no GPU") != std::string::npos);
  }
}

}  // namespace skrull::exec::testing
