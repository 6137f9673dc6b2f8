// Devices by name.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <string>

#include "skrull/cuda/device_registry.h"

namespace skrull::exec::testing {
namespace {

Status StatusOf(const std::string& name, int32_t ordinal = 0) {
  return CreateDevice(name,
                      {.directory = SKRULL_TEST_PLUGIN_DIR, .ordinal = ordinal})
      .status();
}

// Is what nobody wrote NaN?
bool Poisons(Device* device) {
  const auto buffer = device->Allocate(sizeof(double));
  REQUIRE(buffer.ok());
  return std::isnan(*static_cast<const double*>(buffer->data()));
}

}  // namespace

TEST_CASE("Devices: there is one cpu, built in", "[devices]") {
  const auto cpu =
      CreateDevice("cpu", {.directory = "", .poison_buffers = true});
  REQUIRE(cpu.ok());
  CHECK((*cpu)->name() == "cpu");
  CHECK(Poisons(cpu->get()));
  for (const int32_t ordinal : {-1, 1}) {
    CHECK(StatusOf("cpu", ordinal).code() == StatusCode::kInvalidArgument);
    CHECK_THAT(StatusOf("cpu", ordinal).message(),
               Catch::Contains("ordinal " + std::to_string(ordinal)));
  }
}

TEST_CASE("Devices: a library is opened by name, with the options",
          "[devices]") {
  const auto good = CreateDevice("good", {.directory = SKRULL_TEST_PLUGIN_DIR,
                                          .ordinal = 1,
                                          .poison_buffers = true});
  INFO(good.status().ToString());
  REQUIRE(good.ok());
  CHECK((*good)->name() == "good");
  CHECK(Poisons(good->get()));
  // Its own errors pass.
  CHECK(StatusOf("good", 2) ==
        Status(StatusCode::kInvalidArgument, "of two devices, none is 2"));
}

TEST_CASE("Devices: what is missing is named", "[devices]") {
  CHECK(StatusOf("absent").code() == StatusCode::kNotFound);
  CHECK_THAT(StatusOf("absent").message(),
             Catch::Contains("libskrull_device_absent.so") &&
                 Catch::Contains("Built in: cpu"));
  CHECK_THAT(CreateDevice("absent", {}).status().message(),
             Catch::Contains("libskrull_device_absent.so"));
  CHECK(StatusOf("broken").code() == StatusCode::kNotFound);
  CHECK_THAT(StatusOf("broken").message(),
             Catch::Contains("skrull_test_function_of_a_missing_library"));
  CHECK(StatusOf("empty").code() == StatusCode::kUnsupported);
  CHECK_THAT(StatusOf("empty").message(), Catch::Contains("no device"));
  CHECK(StatusOf("old").code() == StatusCode::kUnsupported);
  CHECK_THAT(StatusOf("old").message(), Catch::Contains("version -1"));
  for (const char* name : {"", "../cpu", "CUDA", "a.b"}) {
    CHECK(StatusOf(name).code() == StatusCode::kInvalidArgument);
  }
}

}  // namespace skrull::exec::testing
