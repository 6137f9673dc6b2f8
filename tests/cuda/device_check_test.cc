// RunDeviceCheck: that it finds what is wrong, and says what it measured.
#include "skrull/cuda/check/device_check.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "skrull/cuda/check/attention_sample.h"
#include "skrull/cuda/check/budget.h"
#include "skrull/cuda/check/report.h"
#include "skrull/cuda/check/rows.h"
#include "skrull/cuda/check/speed.h"
#include "skrull/cuda/check/virtual_ranks.h"
#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/cpu/host_types.h"
#include "skrull/cuda/host_queue.h"

namespace skrull::check {
namespace {

using exec::Result;
using exec::Status;

// The cpu backend with one fault.
class FaultyBackend final : public exec::AttentionBackend {
 public:
  enum class Fault {
    kNone,
    kSkipRow,
    kScale,
    kGradient,
    kRefuse,
    kReadsBehindQueries,
    kUsesKeyTail,
    kReadsBehindKeyTail,
    kUnsteady,
    kNeverDeterministic,
  };

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
    if (fault_ == Fault::kNeverDeterministic && problem.deterministic &&
        pass == exec::Pass::kBackward) {
      return {exec::StatusCode::kUnsupported, "sums are in no order"};
    }
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
    if (fault_ == Fault::kUnsteady)
      wrong.problem.scale *= 1 + 1e-6 * (++calls_ % 2);
    SKRULL_EXEC_RETURN_IF_ERROR(backend_->Forward(wrong, workspace, stream));
    const exec::Tensor& o = call.o;
    switch (fault_) {
      case Fault::kSkipRow:  // as if its last number had not been written
        return exec::EnqueueOnHost(stream, [o](const Status&) {
          char* const end = End(o);
          std::fill_n(end - exec::SizeOf(o.dtype), exec::SizeOf(o.dtype),
                      '\xFF');
          return Status();
        });
      case Fault::kReadsBehindQueries:
        return AddToLast(o, End(call.q), 0, stream);
      case Fault::kUsesKeyTail:
        return AddToLast(o, End(call.k), 1, stream);
      case Fault::kReadsBehindKeyTail:
        return AddToLast(o,
                         End(call.k) + int64_t{kv_tail_rows()} *
                                           call.k.row_stride *
                                           exec::SizeOf(o.dtype),
                         0, stream);
      default:
        return {};
    }
  }
  Status Backward(const exec::AttentionBackward& call,
                  exec::Workspace workspace, exec::Stream stream) override {
    exec::AttentionBackward wrong = call;
    if (fault_ == Fault::kGradient) std::swap(wrong.dk, wrong.dv);
    return backend_->Backward(wrong, workspace, stream);
  }

 private:
  static char* End(const exec::Tensor& tensor) {
    return static_cast<char*>(tensor.data) +
           tensor.rows * tensor.row_stride * exec::SizeOf(tensor.dtype);
  }
  // o's last number += factor * *from.
  static Status AddToLast(const exec::Tensor& o, const char* from,
                          double factor, exec::Stream stream) {
    return exec::EnqueueOnHost(stream, [=](const Status&) {
      exec::WithHostType(o.dtype, [&]<class T>(T) {
        char* const last = End(o) - sizeof(T);
        T sum, addend;
        std::memcpy(&sum, last, sizeof(T));
        std::memcpy(&addend, from, sizeof(T));
        sum = exec::ConvertHost<T>(exec::ConvertHost<double>(sum) +
                                   factor * exec::ConvertHost<double>(addend));
        std::memcpy(last, &sum, sizeof(T));
      });
      return Status();
    });
  }

  const Fault fault_;
  int calls_ = 0;
  const std::unique_ptr<exec::AttentionBackend> backend_;
};

CheckReport Check(FaultyBackend::Fault fault,
                  const std::set<std::string>& sections = {},
                  double budget_seconds = 1e9) {
  exec::CpuDevice device;
  FaultyBackend backend(fault);
  Budget budget(profile::WallClock(), budget_seconds);
  CheckReport report;
  RunDeviceCheck(&device, &backend, CheckSizes::Tiny(exec::MemoryKind::kHost),
                 sections, &budget, &report);
  return report;
}

// Cases of correctness: three kinds of heads, two types, five each; and of
// virtual ranks: 2, 4 and 8, by two exchanges.
constexpr size_t kCorrectness = 3 * 2 * 5;
constexpr size_t kVirtualRanks = 3 * 2;

}  // namespace

TEST_CASE("RunDeviceCheck: a sound backend has no failures", "[check]") {
  const CheckReport report = Check(FaultyBackend::Fault::kNone);
  INFO(report.text);
  CHECK(report.failures.empty());
  CHECK(report.json["correctness"].size() == kCorrectness);
  CHECK(report.json["virtual_ranks"].size() == kVirtualRanks);
  CHECK(report.json["attention"].size() == 3);  // two lengths and a pack
  CHECK(report.json["zigzag"].size() == 3);     // dense, first and last rank
  CHECK(report.json["rows"].size() == 3);       // pack, unpack, fold
  CHECK(report.json["overlap"].size() == 1);
  for (const auto& [section, rows] : report.json.items()) {
    CHECK_THAT(report.text, Catch::Contains(section + "\n"));
    for (const auto& row : rows) {
      INFO(row.dump());
      CHECK(row.contains("case"));
      CHECK_FALSE(row.contains("failure"));
      CHECK_FALSE(row.contains("skipped"));
    }
  }
  CHECK(report.json["attention"][0]["forward_teraflops"].get<double>() > 0);
  for (const auto& row : report.json["rows"]) {
    CHECK(row["gigabytes_per_second"].get<double>() > 0);
    CHECK(row["share_of_copy"].get<double>() > 0);
  }
  // Two ranks and two passes of zigzag; pack, unpack; overlap.
  REQUIRE(report.targets.size() == 4 + 2 + 1);
  CHECK_THAT(report.targets[3].figure,
             Catch::StartsWith("zigzag, 4/2 heads of 16 float32") &&
                 Catch::EndsWith("128 on rank 7 of 8, backward"));
  CHECK(report.targets[0].least == 0.85);
  CHECK_THAT(report.targets[5].figure, Catch::EndsWith("unpack"));
  CHECK(report.targets[5].least == 0.7);
  CHECK(report.targets[6].least == 0.9);
}

TEST_CASE("RunDeviceCheck: finds what is wrong, by section and case",
          "[check]") {
  using Fault = FaultyBackend::Fault;
  for (const Fault fault : {Fault::kSkipRow, Fault::kScale, Fault::kGradient,
                            Fault::kUsesKeyTail}) {
    const CheckReport report =
        Check(fault, {"correctness", "virtual_ranks", "overlap"});
    INFO("fault " << static_cast<int>(fault) << "\n" << report.text);
    REQUIRE(report.failures.size() == kCorrectness + kVirtualRanks);
    CHECK_THAT(report.failures[0],
               Catch::StartsWith("correctness, 4/2 heads of 16 float32, whole: "
                                 "off by"));
    CHECK_THAT(report.failures.back(),
               Catch::StartsWith("virtual_ranks, 8 ranks"));
    CHECK_THAT(report.text, Catch::Contains("FAILED: off by"));
    CHECK(report.json["correctness"][0].contains("failure"));
    // It goes on.
    CHECK(report.json["overlap"].size() == 1);
    CHECK_FALSE(report.json.contains("rows"));
  }
  const CheckReport reads = Check(Fault::kReadsBehindKeyTail, {"correctness"});
  INFO(reads.text);
  CHECK(reads.failures.size() == kCorrectness);
  const CheckReport refused = Check(Fault::kRefuse);
  INFO(refused.text);
  CHECK(refused.failures.size() == kCorrectness + 3 + 3 + 1 + kVirtualRanks);
  for (const std::string& failure : refused.failures) {
    CHECK_THAT(failure, Catch::Contains("no plan today"));
  }
}

TEST_CASE("RunDeviceCheck: finds what only some cases show", "[check]") {
  using Fault = FaultyBackend::Fault;
  const auto failing = [](Fault fault, const std::string& text) {
    const CheckReport report = Check(fault, {"correctness"});
    INFO(report.text);
    CHECK(report.failures.size() == kCorrectness / 5);
    for (const std::string& failure : report.failures) {
      CHECK_THAT(failure, Catch::Contains(text));
    }
  };
  failing(Fault::kReadsBehindQueries, "NaN behind queries: off by o inf");
  failing(Fault::kUnsteady, "deterministic: two runs differ");

  const CheckReport report = Check(Fault::kNeverDeterministic, {"correctness"});
  INFO(report.text);
  CHECK(report.failures.empty());
  CHECK_THAT(report.text,
             Catch::Contains("deterministic: skipped: UNSUPPORTED: sums are in "
                             "no order"));
}

TEST_CASE("RunDeviceCheck: skips what only measures once time is up",
          "[check]") {
  const CheckReport report = Check(FaultyBackend::Fault::kNone, {}, 0);
  INFO(report.text);
  CHECK(report.failures.empty());
  CHECK(report.targets.empty());
  for (const std::string section : {"attention", "zigzag", "rows", "overlap"}) {
    REQUIRE_FALSE(report.json[section].empty());
    for (const auto& row : report.json[section]) {
      CHECK_THAT(row.value("skipped", ""), Catch::Contains("--budget-seconds"));
    }
  }
  for (const std::string section : {"correctness", "virtual_ranks"}) {
    for (const auto& row : report.json[section]) CHECK(row.contains("o"));
  }
}

TEST_CASE("Budget: runs what is expected to end in time", "[check]") {
  double now = 100;
  Budget budget([&] { return now; }, 60);
  const auto takes = [&](double seconds, bool counts) {
    return [&now, seconds, counts] {
      now += seconds;
      return counts;
    };
  };
  CHECK(budget.Run(1, takes(10, true)));  // 10 seconds a unit
  CHECK(budget.left() == 50);
  CHECK_FALSE(budget.Run(5.1, takes(0, true)));  // would take 51
  CHECK(budget.left() == 50);
  CHECK(budget.Run(5, takes(20, true)));  // 4 a unit
  CHECK(budget.Run(1, takes(5, true)));   // 5, which is no better
  CHECK(budget.Run(1, takes(1, false)));  // does not count
  CHECK(budget.left() == 24);
  CHECK_FALSE(budget.Run(6.1, takes(0, true)));
  CHECK(budget.Run(6, takes(30, true)));  // longer than expected
  CHECK_FALSE(budget.Run(1e-9, takes(0, true)));
}

TEST_CASE("TargetText: a missed target is said", "[check]") {
  CHECK(TargetText({}).empty());
  CHECK(TargetText({{"rows, pack", 0.7, 0.7}, {"overlap, x", 0.85, 0.9}}) ==
        "\ntargets\n"
        "  rows, pack: 70.0 %, target 70 %: met\n"
        "  overlap, x: 85.0 %, target 90 %: MISSED\n");
  const auto json = TargetJson({{"overlap, x", 0.85, 0.9}});
  CHECK(json.size() == 1);
  CHECK(json[0]["met"] == false);
  CHECK(json[0]["target"] == 0.9);
}

TEST_CASE("ShardEfficiency and RowSpeed: by hand", "[check]") {
  const profile::Timing dense = {.seconds = 8};
  CHECK(ShardEfficiency(dense, {.seconds = 1}, 8) == 1);
  CHECK(ShardEfficiency(dense, {.seconds = 1.25}, 8) == Approx(0.8));
  CHECK(ShardEfficiency(dense, {.seconds = 0}, 8) == 0);
  const RowSpeed::Kernel kernel = {
      .kernel = {.seconds = 2e-3}, .copy = {.seconds = 1e-3}, .bytes = 4000000};
  CHECK(kernel.gigabytes_per_second() == Approx(2));
  CHECK(kernel.share() == Approx(0.5));
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

}  // namespace skrull::check
