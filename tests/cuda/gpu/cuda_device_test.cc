// The device of GPUs through the registry, where there is no GPU and where
// there is one.
#include <catch2/catch.hpp>
#include <cstdint>

#include "skrull/cuda/device_registry.h"

namespace skrull::exec::testing {
namespace {

DeviceResult OpenGpu(int32_t ordinal = 0) {
  return CreateDevice("cuda", {.directory = SKRULL_TEST_DEVICE_DIR,
                               .ordinal = ordinal,
                               .poison_buffers = true});
}

}  // namespace

TEST_CASE("Cuda device: it opens, or tells what the machine lacks",
          "[cuda_device]") {
  const DeviceResult gpu = OpenGpu();
  INFO(gpu.status().ToString());
  if (gpu.ok()) {
    CHECK((*gpu)->name() == "cuda");
    CHECK((*gpu)->memory() == MemoryKind::kCuda);
    CHECK(OpenGpu(-1).status().code() == StatusCode::kInvalidArgument);
    CHECK(OpenGpu(1000).status().code() == StatusCode::kInvalidArgument);
    return;
  }
  CHECK(gpu.status().code() == StatusCode::kNotFound);
  CHECK_THAT(gpu.status().message(),
             Catch::Contains("no NVIDIA driver (libcuda.so.1)") ||
                 Catch::Contains("no usable GPU: "));
}

}  // namespace skrull::exec::testing
