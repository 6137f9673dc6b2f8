// What skrull-device-check does besides RunDeviceCheck: NCCL with one rank,
// compute-sanitizer, versions.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "skrull/cuda/check/library_versions.h"
#include "skrull/cuda/check/nccl_check.h"
#include "skrull/cuda/check/report.h"
#include "skrull/cuda/check/sanitizer.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/tests/cuda/fake_nccl.h"
#include "skrull/tests/cuda/forwarding_device.h"
#include "skrull/tests/support/daemon.h"

namespace skrull::check {
namespace {

using exec::NcclResult;
using exec::testing::FakeNccl;
using skrull::testing::TempDir;

// NCCL that moves too little in one of its collectives.
class WrongNccl final : public FakeNccl {
 public:
  explicit WrongNccl(const std::string& wrong) : wrong_(wrong) {}

  NcclResult AllGather(const void* send, void* recv, int64_t bytes,
                       exec::NcclComm comm, exec::Stream stream) override {
    return FakeNccl::AllGather(send, recv, bytes - Less("all-gather"), comm,
                               stream);
  }
  NcclResult ReduceScatterSum(const void* send, void* recv, int64_t count,
                              exec::DType dtype, exec::NcclComm comm,
                              exec::Stream stream) override {
    return FakeNccl::ReduceScatterSum(
        send, recv, count - Less("reduce-scatter"), dtype, comm, stream);
  }
  NcclResult SendRecv(const void* send, int32_t to, void* recv, int32_t from,
                      int64_t bytes, exec::NcclComm comm,
                      exec::Stream stream) override {
    return FakeNccl::SendRecv(send, to, recv, from, bytes - Less("shift"), comm,
                              stream);
  }

 private:
  int64_t Less(const std::string& collective) const {
    return collective == wrong_ ? 1 : 0;
  }
  const std::string wrong_;
};

class DeviceOfCudaMemory final : public exec::testing::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  exec::MemoryKind memory() const override { return exec::MemoryKind::kCuda; }
};

// A program of this name that logs its arguments and then runs `body`.
std::string Script(const TempDir& directory, const std::string& body) {
  const std::filesystem::path path = directory.path() / "compute-sanitizer";
  std::ofstream(path) << "#!/bin/sh\necho \"$@\" >>'"
                      << directory.path().string() << "/log'\n"
                      << body << '\n';
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path.string();
}

CheckReport Sanitized(const std::string& sanitizer, double seconds) {
  CheckReport report;
  SectionWriter section("sanitizer", &report);
  RunSanitizers({.sanitizer = sanitizer,
                 .program = {"/bin/check", "--tiny"},
                 .seconds = seconds},
                &section);
  REQUIRE(report.json["sanitizer"].size() == 4);
  return report;
}

}  // namespace

TEST_CASE("CheckNccl: one rank, all it does", "[check][nccl]") {
  exec::CpuDevice device;
  FakeNccl nccl;
  CheckReport report;
  CheckNccl(&device, &nccl, 3, &report);
  INFO(report.text);
  CHECK(report.failures.empty());
  REQUIRE(report.json["nccl"].size() == 6);
  CHECK(report.json["nccl"][5]["case"] == "abort while idle");
  CHECK(nccl.devices().contains(3));
  const FakeNccl::Counts counts = nccl.counts();
  CHECK(counts.aborted == 1);
  CHECK(counts.communicators == 0);
  CHECK(counts.buffers == 0);
  CHECK(counts.windows == 0);
  CHECK(counts.misuses == 0);
}

TEST_CASE("CheckNccl: what fails ends it and is named", "[check][nccl]") {
  for (const auto& [function, name] :
       std::vector<std::pair<std::string, std::string>>{
           {"CommInitRank", "init"},
           {"CommWindowRegister", "registration"},
           {"AllGather", "all-gather"}}) {
    INFO(function);
    exec::CpuDevice device;
    FakeNccl nccl;
    nccl.Break(function, NcclResult::kSystemError);
    CheckReport report;
    CheckNccl(&device, &nccl, 0, &report);
    INFO(report.text);
    REQUIRE(report.failures.size() == 1);
    CHECK_THAT(report.failures[0], Catch::StartsWith("nccl, " + name + ": "));
    CHECK(report.json["nccl"].back()["case"] == name);
    CHECK(nccl.counts().communicators == 0);
    CHECK(nccl.counts().buffers == 0);
  }
  for (const std::string name : {"all-gather", "reduce-scatter", "shift"}) {
    exec::CpuDevice device;
    WrongNccl nccl(name);
    CheckReport report;
    CheckNccl(&device, &nccl, 0, &report);
    INFO(report.text);
    REQUIRE(report.failures.size() == 1);
    CHECK_THAT(report.failures[0], Catch::StartsWith("nccl, " + name + ": ") &&
                                       Catch::Contains("wrong bytes of 2"));
  }
}

TEST_CASE("CheckInstalledNccl: says why it is skipped", "[check][nccl]") {
  exec::CpuDevice cpu;
  CheckReport report;
  CheckInstalledNccl(&cpu, "", 0, &report);
  CHECK_THAT(report.json["nccl"][0].value("skipped", ""),
             Catch::Contains("device cpu has no CUDA memory"));
  DeviceOfCudaMemory cuda(&cpu);
  CheckInstalledNccl(&cuda, "/nowhere", 0, &report);
  CHECK_THAT(report.json["nccl"][0].value("skipped", ""),
             Catch::Contains("/nowhere/libskrull_comm_nccl.so"));
  CHECK(report.failures.empty());
}

TEST_CASE("RunSanitizers: each tool runs the program", "[check]") {
  const TempDir directory;
  const CheckReport report = Sanitized(Script(directory, "exit 0"), 100);
  INFO(report.text);
  CHECK(report.failures.empty());
  for (const auto& row : report.json["sanitizer"]) CHECK(row["errors"] == 0);
  std::ifstream log(directory.path() / "log");
  for (const std::string tool :
       {"memcheck", "racecheck", "initcheck", "synccheck"}) {
    std::string line;
    std::getline(log, line);
    CHECK(line == "--tool " + tool + " --error-exitcode 9 /bin/check --tiny");
  }
}

TEST_CASE("RunSanitizers: errors, failures, and what says nothing", "[check]") {
  const TempDir directory;
  const CheckReport report = Sanitized(
      Script(directory,
             "case $2 in\n"
             "memcheck) echo noise; echo 'Invalid __global__ read'; exit 9;;\n"
             "racecheck) echo 'o is off' >&2; exit 1;;\n"
             "initcheck) echo 'Error: Device not supported.'; exit 1;;\n"
             "*) kill -9 $$;;\n"
             "esac"),
      100);
  INFO(report.text);
  REQUIRE(report.failures.size() == 2);
  CHECK(report.failures[0] ==
        "sanitizer, memcheck: errors found: noise|Invalid __global__ read");
  CHECK(report.failures[1] == "sanitizer, racecheck: exit code 1: o is off");
  CHECK_THAT(report.json["sanitizer"][2].value("skipped", ""),
             Catch::Contains("does not support the device"));
  CHECK_THAT(report.json["sanitizer"][3].value("skipped", ""),
             Catch::Contains("not done in"));

  const CheckReport absent =
      Sanitized((directory.path() / "nothing").string(), 100);
  const CheckReport late = Sanitized(Script(directory, "exit 9"), 3);
  CHECK(absent.failures.empty());
  CHECK(late.failures.empty());
  for (size_t i = 0; i < 4; ++i) {
    CHECK_THAT(absent.json["sanitizer"][i].value("skipped", ""),
               Catch::Contains("compute-sanitizer is not there"));
    CHECK_THAT(late.json["sanitizer"][i].value("skipped", ""),
               Catch::Contains("no time is left"));
  }
}

TEST_CASE("SectionWriter: the text goes out as it is written", "[check]") {
  std::ostringstream live;
  CheckReport report;
  report.live = &live;
  SectionWriter section("rows", &report);
  section.Add("a", {{"x", 1}}, "one");
  CHECK(live.str() == "rows\n  a: one\n");
  section.Skip("b", "late");
  section.Fail("c", "wrong");
  CHECK(live.str() == report.text);
  CHECK_THAT(live.str(), Catch::EndsWith("  b: skipped: late\n"
                                         "  c: FAILED: wrong\n"));
  CHECK(report.failures == std::vector<std::string>{"rows, c: wrong"});
}

TEST_CASE("Library versions: in words", "[check]") {
  CHECK(NcclVersionText(22809) == "2.28.9");
  CHECK(NcclVersionText(2804) == "2.8.4");
  CHECK(CudnnVersionText(91900) == "9.19.0");
  CHECK(CudnnVersionText(8907) == "8.9.7");
  const auto versions = LibraryVersions();
  for (const char* library : {"nccl", "cudnn"}) {
    const std::string version = versions[library];
    INFO(version);
    CHECK((version.starts_with("not found: lib") || version.find('.') == 1));
  }
}

}  // namespace skrull::check
