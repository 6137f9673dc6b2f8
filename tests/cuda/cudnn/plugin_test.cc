// libskrull_backend_cudnn.so as an executor opens it.
#include <dlfcn.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "skrull/cuda/attention/cudnn/counters.h"
#include "skrull/cuda/backend_registry.h"

namespace skrull::exec::cudnn::testing {
namespace {

BackendResult Open() {
  return CreateAttentionBackend(
      "cudnn", {.directory = SKRULL_BACKEND_DIR, .cpu_threads = 1});
}

}  // namespace

TEST_CASE("cudnn plugin: is opened by name", "[cudnn]") {
  const BackendResult backend = Open();
  REQUIRE(backend.status().ToString() == "OK");
  CHECK((*backend)->name() == "cudnn");
  CHECK((*backend)->memory() == MemoryKind::kCuda);
  CHECK((*backend)->lse_order() == LseOrder::kRowMajor);
  CHECK((*backend)->kv_tail_rows() >= 128);
  const AttentionProblem problem{.dtype = DType::kBFloat16,
                                 .q_heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 64,
                                 .scale = 0.125,
                                 .deterministic = false};
  const Status status = (*backend)->Supports(problem, Pass::kForward);
  INFO(status.ToString());  // of the machine's GPU, if it has one
  CHECK((status.ok() || status.code() == StatusCode::kDeviceError ||
         status.code() == StatusCode::kUnsupported));
  CHECK((*backend)->Supports({}, Pass::kForward).code() ==
        StatusCode::kInvalidArgument);
}

TEST_CASE("cudnn plugin: refuses options that are none", "[cudnn]") {
  REQUIRE(setenv("SKRULL_CUDNN_WORKSPACE_BYTES", "1G", 1) == 0);
  const Status status = Open().status();
  REQUIRE(unsetenv("SKRULL_CUDNN_WORKSPACE_BYTES") == 0);
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(status.message(), Catch::Contains("'1G'"));
}

TEST_CASE("cudnn plugin: its counters are read", "[cudnn]") {
  REQUIRE(Open().ok());
  void* const library = dlopen(SKRULL_BACKEND_DIR "/libskrull_backend_cudnn.so",
                               RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library != nullptr);
  const auto read = reinterpret_cast<decltype(&skrull_cudnn_read_counters)>(
      dlsym(library, "skrull_cudnn_read_counters"));
  REQUIRE(read != nullptr);
  CHECK(read(nullptr) == 1);
  skrull_cudnn_counters counters{};
  counters.plans_built = 7;
  CHECK(read(&counters) == 1);  // struct_bytes is not set
  CHECK(counters.plans_built == 7);
  counters.struct_bytes = sizeof(counters);
  CHECK(read(&counters) == 0);
  CHECK(counters.plans_built == 0);
}

}  // namespace skrull::exec::cudnn::testing
