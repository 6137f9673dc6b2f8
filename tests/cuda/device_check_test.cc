// skrull-device-check: that it finds what is wrong, and says what it measured.
#include "skrull/cuda/check/device_check.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "skrull/cuda/check/attention_sample.h"
#include "skrull/cuda/check/rows.h"
#include "skrull/cuda/check/speed.h"
#include "skrull/cuda/check/virtual_ranks.h"
#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/host_queue.h"
#include "skrull/tests/support/daemon.h"

namespace skrull::check {
namespace {

using exec::Result;
using exec::Status;
using skrull::testing::Process;
using skrull::testing::TempDir;

// The cpu backend with one fault.
class FaultyBackend final : public exec::AttentionBackend {
 public:
  enum class Fault { kNone, kSkipRow, kScale, kGradient, kRefuse };

  explicit FaultyBackend(Fault fault)
      : fault_(fault), backend_(*exec::CreateCpuAttention(1)) {}

  std::string_view name() const override { return "faulty"; }
  exec::MemoryKind memory() const override { return backend_->memory(); }
  exec::LseOrder lse_order() const override {
    return exec::LseOrder::kHeadMajor;  // the other one
  }
  int32_t kv_tail_rows() const override { return 3; }
  Status Supports(const exec::AttentionProblem& problem,
                  exec::Pass pass) const override {
    return backend_->Supports(problem, pass);
  }
  Result<int64_t> Prepare(const exec::AttentionProblem& problem,
                          const exec::SegmentBounds& bounds,
                          exec::Pass pass) override {
    return backend_->Prepare(problem, bounds, pass);
  }
  Status Forward(const exec::AttentionForward& call, exec::Workspace workspace,
                 exec::Stream stream) override {
    if (fault_ == Fault::kRefuse) {
      return {exec::StatusCode::kPlanBuildFailed, "no plan today"};
    }
    exec::AttentionForward wrong = call;
    if (fault_ == Fault::kScale) wrong.problem.scale *= 1.1;
    SKRULL_EXEC_RETURN_IF_ERROR(backend_->Forward(wrong, workspace, stream));
    if (fault_ != Fault::kSkipRow) return {};
    // As if its last number had not been written.
    return exec::EnqueueOnHost(stream, [o = call.o](const Status&) {
      char* const end = static_cast<char*>(o.data) +
                        o.rows * o.row_stride * exec::SizeOf(o.dtype);
      std::fill_n(end - exec::SizeOf(o.dtype), exec::SizeOf(o.dtype), '\xFF');
      return Status();
    });
  }
  Status Backward(const exec::AttentionBackward& call,
                  exec::Workspace workspace, exec::Stream stream) override {
    exec::AttentionBackward wrong = call;
    if (fault_ == Fault::kGradient) std::swap(wrong.dk, wrong.dv);
    return backend_->Backward(wrong, workspace, stream);
  }

 private:
  const Fault fault_;
  const std::unique_ptr<exec::AttentionBackend> backend_;
};

CheckReport Check(FaultyBackend::Fault fault) {
  exec::CpuDevice device;
  FaultyBackend backend(fault);
  CheckReport report;
  RunDeviceCheck(&device, &backend, CheckSizes::Tiny(), &report);
  return report;
}

}  // namespace

TEST_CASE("RunDeviceCheck: a sound backend has no failures", "[check]") {
  const CheckReport report = Check(FaultyBackend::Fault::kNone);
  INFO(report.text);
  CHECK(report.failures.empty());
  // Two types, whole and at the end of more keys; 2, 4, 8 ranks; two lengths, a
  // pack and a shard.
  CHECK(report.json["correctness"].size() == 4);
  CHECK(report.json["virtual_ranks"].size() == 3);
  CHECK(report.json["attention"].size() == 4);
  CHECK(report.json["rows"].size() == 1);
  CHECK(report.json["overlap"].size() == 1);
  for (const auto& [section, rows] : report.json.items()) {
    CHECK_THAT(report.text, Catch::Contains(section + "\n"));
    for (const auto& row : rows) {
      INFO(row.dump());
      CHECK(row.contains("case"));
      CHECK_FALSE(row.contains("failure"));
    }
  }
  CHECK(report.json["attention"][0]["forward_teraflops"].get<double>() > 0);
  CHECK(report.json["rows"][0]["fold_gigabytes_per_second"].get<double>() > 0);
}

TEST_CASE("RunDeviceCheck: finds what is wrong, by section and case",
          "[check]") {
  using Fault = FaultyBackend::Fault;
  for (const Fault fault : {Fault::kSkipRow, Fault::kScale, Fault::kGradient}) {
    const CheckReport report = Check(fault);
    INFO(report.text);
    // Each case of correctness and of virtual ranks.
    REQUIRE(report.failures.size() == 4 + 3);
    CHECK_THAT(report.failures[0],
               Catch::StartsWith("correctness, 4/2 heads of 16 float32, whole: "
                                 "off by"));
    CHECK_THAT(report.failures[6], Catch::StartsWith("virtual_ranks, 8 ranks"));
    CHECK_THAT(report.text, Catch::Contains("FAILED: off by"));
    CHECK(report.json["correctness"][0].contains("failure"));
    // It goes on.
    CHECK(report.json["overlap"].size() == 1);
  }
  const CheckReport refused = Check(Fault::kRefuse);
  INFO(refused.text);
  CHECK(refused.failures.size() == 4 + 4 + 1 + 3);
  for (const std::string& failure : refused.failures) {
    CHECK_THAT(failure, Catch::Contains("no plan today"));
  }
}

TEST_CASE("RelativeError: by hand", "[check]") {
  const Rows b = {.width = 2, .values = {3, 0, 0, 4}};
  Rows a = b;
  CHECK(RelativeError(a, b) == 0);
  a.values[1] = 1;
  CHECK(RelativeError(a, b) == Approx(0.2));
  a.values[1] = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isinf(RelativeError(a, b)));
  const Rows zero = {.width = 1, .values = {0}};
  CHECK(RelativeError(zero, zero) == 0);
  CHECK(std::isinf(RelativeError({.width = 1, .values = {1}}, zero)));
}

TEST_CASE("Compare: a log-sum-exp that is no number is beyond every limit",
          "[check]") {
  AttentionOutputs reference;
  reference.lse = {.width = 1, .values = {1, 2, 3}};
  AttentionOutputs outputs = reference;
  outputs.lse.values = {1, std::numeric_limits<double>::quiet_NaN(), 3};
  CHECK_FALSE(
      Compare(outputs, reference).within(LimitOf(exec::DType::kFloat16)));
  outputs.lse.values = {1, 2.5, 3};
  CHECK(Compare(outputs, reference).lse == 0.5);
}

TEST_CASE("MixedPlacements: local and sharded, on every rank", "[check]") {
  for (const int32_t ranks : {2, 3, 4, 8}) {
    INFO("ranks " << ranks);
    std::set<int32_t> degrees;
    std::set<int32_t> local;
    int32_t sequence = 0;
    for (const SequencePlacement& p : MixedPlacements(ranks, 24)) {
      CHECK(p.sequence == sequence++);
      CHECK(p.token_count >= 1);
      CHECK(p.first_rank + p.degree <= ranks);
      degrees.insert(p.degree);
      if (p.degree == 1) local.insert(p.first_rank);
    }
    CHECK(degrees.contains(ranks));
    CHECK(degrees.contains(2));
    CHECK(local.size() == static_cast<size_t>(ranks));
  }
}

TEST_CASE("OverlapSpeed: by hand", "[check]") {
  CHECK(OverlapSpeed{2, 3, 3}.efficiency() == Approx(1));
  CHECK(OverlapSpeed{2, 3, 5}.efficiency() == Approx(0).margin(1e-12));
  CHECK(OverlapSpeed{2, 3, 4}.efficiency() == Approx(0.5));
  CHECK(OverlapSpeed{0, 3, 3}.efficiency() == 0);
}

TEST_CASE("skrull-device-check: checks the cpu, and writes what it found",
          "[check]") {
  const TempDir directory;
  const std::string path = (directory.path() / "check.json").string();
  Process process({SKRULL_DEVICE_CHECK_PATH, "--tiny", "--json", path});
  const int code = process.Wait();
  INFO(process.Output());
  REQUIRE(code == 0);
  CHECK_THAT(process.Output(), Catch::Contains("device cpu") &&
                                   Catch::Contains("== backend cpu") &&
                                   Catch::Contains("virtual_ranks") &&
                                   Catch::Contains("seconds_per_flop"));
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  CHECK(json["failures"].empty());
  CHECK(json["backends"]["cpu"]["virtual_ranks"].size() == 3);
  CHECK_THAT(json["backends"]["cpu"]["fit"]["fragment"].get<std::string>(),
             Catch::Contains("seconds_per_flop: "));
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
  fails({"--tiny", "--backend=nosuch,cpu", "--plugin-dir=/nowhere"}, 1,
        "1 failures; the first is nosuch: NOT_FOUND");
  fails({"--tiny", "--json=/nowhere/check.json"}, 1, "cannot be written");
  fails({"--ordinal=-1"}, 2, "--ordinal");
}

}  // namespace skrull::check
