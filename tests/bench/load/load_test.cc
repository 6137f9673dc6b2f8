// skrull_load's parts against a real daemon.
#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "nlohmann/json.hpp"
#include "skrull/tests/bench/load/driver.h"
#include "skrull/tests/bench/load/load_report.h"
#include "skrull/tests/bench/load/recorder.h"
#include "skrull/tests/bench/load/workload.h"
#include "skrull/tests/support/daemon.h"
#include "skrull/tests/support/process_usage.h"

namespace skrull::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

LoadOptions Mix(const testing::Daemon& daemon) {
  LoadOptions options;
  options.address = daemon.address();
  options.policy = "POLICY_SKRULL";
  options.batch_size = 16;
  options.jobs = 3;
  for (double& weight : options.weights) weight = 1;
  return options;
}

const Recorder::Row& RowOf(const LoadReport& report, Method method) {
  return report.totals.rows[static_cast<size_t>(method)];
}

TEST_CASE("Load: open loop makes every call that is due, of every kind",
          "[bench]") {
  const testing::Daemon daemon;
  LoadReport report;
  report.options = Mix(daemon);
  report.seconds = 1;
  report.options.rate = 300;
  Workload workload(report.options);
  Recorder recorder;
  {
    Driver driver(report.options, &workload, &recorder);
    const Time begin = steady_clock::now();
    driver.RunOpen(begin, begin + milliseconds(1000));
    report.stuck_calls = driver.WaitForCalls();
  }
  report.totals = recorder.Take();
  CHECK(report.stuck_calls == 0);
  int64_t calls = 0;
  for (int i = 0; i < kMethods; ++i) {
    const Recorder::Row& row = RowOf(report, static_cast<Method>(i));
    CAPTURE(MethodName(static_cast<Method>(i)));
    CHECK(row.answered.count() > 0);
    CHECK(row.refused.empty());
    calls += row.answered.count();
  }
  CHECK(calls == 300);
  CHECK(report.totals.lag.count() == 300);
  CHECK(
      daemon.Metric("skrull_rpcs_total{code=\"OK\",method=\"GetRankPlan\"}") ==
      static_cast<double>(
          RowOf(report, Method::kGetRankPlan).answered.count()));
  const auto json = nlohmann::json::parse(JsonOf(report));
  CHECK(json["methods"]["PlanBatch"]["answered"]["count"] ==
        RowOf(report, Method::kPlanBatch).answered.count());
  CHECK(TableOf(report).find("GetRankPlan") != std::string::npos);
}

TEST_CASE("Load: open loop holds back what has no caller", "[bench]") {
  const testing::Daemon daemon;
  LoadReport report;
  report.options = Mix(daemon);
  report.options.rate = 100'000;  // a call takes longer than 10 microseconds
  report.options.max_in_flight = 1;
  report.seconds = 0.05;
  Workload workload(report.options);
  Recorder recorder;
  {
    Driver driver(report.options, &workload, &recorder);
    const Time begin = steady_clock::now();
    driver.RunOpen(begin, begin + milliseconds(50));
    CHECK(driver.WaitForCalls() == 0);
  }
  report.totals = recorder.Take();
  CHECK(report.totals.held_back > 0);
  CHECK(report.totals.held_back + report.totals.lag.count() == 5000);
  CHECK(TableOf(report).find("held back") != std::string::npos);
  CHECK(nlohmann::json::parse(JsonOf(report))["held_back"] ==
        report.totals.held_back);
}

TEST_CASE("Load: closed loop; refusals are told by reason", "[bench]") {
  // A quota that the first batch uses up.
  const testing::Daemon daemon({"--quota_lengths_per_second=1"});
  LoadReport report;
  report.options = Mix(daemon);
  report.seconds = 1;
  report.options.mode = "closed";
  report.options.in_flight = 4;
  Workload workload(report.options);
  Recorder recorder;
  {
    Driver driver(report.options, &workload, &recorder);
    driver.RunClosed(steady_clock::now() + milliseconds(500));
    CHECK(driver.WaitForCalls() == 0);
  }
  report.totals = recorder.Take();
  CHECK(RowOf(report, Method::kPlanBatch).refused.contains("QUOTA_EXCEEDED"));
  CHECK(RowOf(report, Method::kStream).refused.contains("QUOTA_EXCEEDED"));
  CHECK(TableOf(report).find("refused: QUOTA_EXCEEDED") != std::string::npos);
}

TEST_CASE("Load: the slope is that of a line, and of the best line",
          "[bench]") {
  using testing::LeastSquaresSlope;
  CHECK(LeastSquaresSlope({}) == 0);
  CHECK(LeastSquaresSlope({{1, 5}}) == 0);
  CHECK(LeastSquaresSlope({{0, 1}, {2, 7}, {4, 13}}) == Approx(3));
  CHECK(LeastSquaresSlope({{0, 0}, {1, 1}, {2, 0}, {3, 1}}) == Approx(0.2));
}

}  // namespace
}  // namespace skrull::load
