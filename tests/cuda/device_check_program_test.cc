// The program skrull-device-check: its options, what it writes, and how it is
// carried.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "skrull/tests/support/daemon.h"

namespace skrull::check {

using skrull::testing::Process;
using skrull::testing::TempDir;

TEST_CASE("skrull-device-check: checks the cpu, and writes what it found",
          "[check]") {
  const TempDir directory;
  const std::string path = (directory.path() / "check.json").string();
  Process process({SKRULL_DEVICE_CHECK_PATH, "--tiny", "--json", path});
  const int code = process.Wait();
  INFO(process.Output());
  REQUIRE(code == 0);
  CHECK_THAT(process.Output(),
             Catch::Contains("device cpu") &&
                 Catch::Contains("== backend cpu") &&
                 Catch::Contains("virtual_ranks") &&
                 Catch::Contains("seconds_per_flop") &&
                 Catch::Contains("one rank: skipped: device cpu has no CUDA") &&
                 Catch::Contains("all tools: skipped: device cpu has no CUDA"));
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  CHECK(json["failures"].empty());
  for (const char* key : {"gpu", "nccl", "cudnn"}) CHECK(json.contains(key));
  const auto& cpu = json["backends"]["cpu"];
  CHECK(cpu["virtual_ranks"].size() == 6);
  CHECK(cpu["targets"].size() == 7);
  CHECK_THAT(cpu["fit"][0]["fragment"].get<std::string>(),
             Catch::Contains("seconds_per_flop: "));
  CHECK(json["of_device"]["nccl"][0].contains("skipped"));
  CHECK(json["of_device"]["sanitizer"][0].contains("skipped"));
}

TEST_CASE("skrull-device-check: runs the sections that are asked for",
          "[check]") {
  const TempDir directory;
  const std::string path = (directory.path() / "check.json").string();
  Process process({SKRULL_DEVICE_CHECK_PATH, "--tiny", "--sections=rows,nccl",
                   "--json", path});
  const int code = process.Wait();
  INFO(process.Output());
  REQUIRE(code == 0);
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  const auto& cpu = json["backends"]["cpu"];
  CHECK(cpu.size() == 2);
  CHECK(cpu["rows"].size() == 3);
  CHECK(cpu["targets"].size() == 2);
  CHECK(json["of_device"].contains("nccl"));
  CHECK_FALSE(json["of_device"].contains("sanitizer"));
}

TEST_CASE("skrull-device-check: says what is missing", "[check]") {
  const auto fails = [](std::vector<std::string> flags, int code,
                        const std::string& text) {
    flags.insert(flags.begin(), SKRULL_DEVICE_CHECK_PATH);
    Process process(flags);
    CHECK(process.Wait() == code);
    CHECK_THAT(process.Output(), Catch::Contains(text));
  };
  fails({"--device=cuda", "--plugin-dir=/nowhere"}, 1,
        "libskrull_device_cuda.so");
  fails({"--tiny", "--sections=rows", "--backend=nosuch,cpu",
         "--plugin-dir=/nowhere"},
        1, "1 failures; the first is nosuch: NOT_FOUND");
  fails({"--tiny", "--sections=rows", "--json=/nowhere/check.json"}, 1,
        "cannot be written");
  fails({"--ordinal=-1"}, 2, "--ordinal");
  fails({"--sections=row"}, 2, "--sections");
  fails({"--budget-seconds=0"}, 2, "--budget-seconds");
}

TEST_CASE("skrull-device-check: runs from a folder that was carried",
          "[check]") {
  const TempDir directory;
  const std::filesystem::path bundle = directory.path() / "bundle";
  Process install({SKRULL_CMAKE_PATH, "--install", SKRULL_BUILD_DIR,
                   "--component", "device_check", "--prefix", bundle.string()});
  const int installed = install.Wait();
  INFO(install.Output());
  REQUIRE(installed == 0);
  // Everything that is opened by name and was built lies beside the program.
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(SKRULL_BUILD_DIR) / "cuda")) {
    const std::string name = entry.path().filename().string();
    INFO(name);
    if (name.starts_with("libskrull_") && entry.path().extension() == ".so" &&
        !name.starts_with("libskrull_exec")) {
      CHECK(std::filesystem::exists(bundle / name));
    }
  }
  std::filesystem::copy_file(SKRULL_TEST_PLUGIN_DIR
                             "/libskrull_backend_good.so",
                             bundle / "libskrull_backend_good.so");
  const std::filesystem::path moved = directory.path() / "moved";
  std::filesystem::rename(bundle, moved);
  Process process({(moved / "skrull-device-check").string(), "--tiny",
                   "--sections=rows", "--backend=good,nosuch"});
  process.Wait();
  INFO(process.Output());
  // Found without --plugin-dir, the other one is not.
  CHECK_THAT(process.Output(), Catch::Contains("over 8, unpack"));
  CHECK_THAT(process.Output(),
             Catch::Contains("1 failures; the first is nosuch: NOT_FOUND"));
}

}  // namespace skrull::check
