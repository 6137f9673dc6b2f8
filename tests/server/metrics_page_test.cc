// The metrics page of a real daemon, as promtool and a real Prometheus see it.
#include <catch2/catch.hpp>
#include <fstream>
#include <regex>
#include <set>

#include "skrull/tests/server/service_test_util.h"

namespace skrull::testing {
namespace {

// Gives every kind of metric something to say.
void Exercise(const Daemon& daemon) {
  Client client(daemon.address());
  REQUIRE(client.CreateJob("secret-job-name", SmallSpec(2, 2, 100)).ok());
  REQUIRE(client.Plan(Batch("secret-job-name", 1, {10, 150, 20})).ok());
  REQUIRE(client.RankPlan("secret-job-name", 1, 0).ok());
  CHECK_FALSE(client.Plan(Batch("secret-job-name", 2, {500})).ok());
}

TEST_CASE("Metrics: promtool finds no fault with the page",
          "[server][metrics]") {
  Daemon daemon;
  Exercise(daemon);
  TempDir directory;
  const std::string page = (directory.path() / "page").string();
  std::ofstream(page) << daemon.Scrape();
  Process promtool(
      {"sh", "-c",
       std::string("exec '" SKRULL_PROMTOOL "' check metrics < '") + page +
           "'"});
  const int exit_code = promtool.Wait();
  CHECK(promtool.Output() == "");
  CHECK(exit_code == 0);
}

TEST_CASE("Metrics: the page says what happened, in closed sets of labels",
          "[server][metrics]") {
  Daemon daemon;
  Exercise(daemon);
  CHECK(daemon.Metric("skrull_rpcs_total{code=\"OK\",method=\"PlanBatch\"}") ==
        1);
  CHECK(daemon.Metric("skrull_rpcs_total{code=\"FAILED_PRECONDITION\",method="
                      "\"PlanBatch\"}") == 1);
  CHECK(daemon.Metric("skrull_refusals_total{reason=\"SEQUENCE_TOO_LONG\"}") ==
        1);
  CHECK(daemon.Metric("skrull_plans_total{policy=\"POLICY_OPTIMIZED\"}") == 1);
  CHECK(daemon.Metric("skrull_planned_sequences_total") == 3);
  CHECK(daemon.Metric("skrull_planned_tokens_total") == 180);
  CHECK(daemon.Metric("skrull_sharded_tokens_total") >= 150);
  CHECK(daemon.Metric("skrull_plan_gap_ratio_count") == 1);
  CHECK(daemon.Metric("skrull_plan_imbalance_ratio_count") == 1);
  CHECK(daemon.Metric("skrull_plan_sharded_ratio_count") == 1);
  CHECK(daemon.Metric("skrull_checker_rejections_total") == 0);
  CHECK(daemon.Metric("skrull_jobs") == 1);
  for (const char* phase : {"decode", "plan", "check", "encode", "commit"}) {
    INFO(phase);
    CHECK(daemon.Metric(std::string("skrull_planning_seconds_count{phase=\"") +
                        phase + "\"}") >= 1);
  }
  const std::string page = daemon.Scrape();
  CHECK(page.find("secret-job-name") == std::string::npos);
  std::set<std::string> labels;
  const std::regex label("[{,]([a-z_]+)=\"");
  for (auto it = std::sregex_iterator(page.begin(), page.end(), label);
       it != std::sregex_iterator(); ++it) {
    labels.insert((*it)[1]);
  }
  labels.erase("quantile");  // of the exposer's own summaries
  CHECK(labels == std::set<std::string>{"code", "le", "method", "outcome",
                                        "phase", "policy", "reason",
                                        "version"});
}

TEST_CASE("Metrics: a real Prometheus scrapes the page", "[server][metrics]") {
  Daemon daemon;
  Exercise(daemon);
  TempDir directory;
  const std::string config = (directory.path() / "prometheus.yml").string();
  std::ofstream(config) << "global: {scrape_interval: 1s}\n"
                        << "scrape_configs:\n"
                        << "- job_name: skrull\n"
                        << "  static_configs:\n"
                        << "  - targets: ['" << daemon.metrics_address()
                        << "']\n";
  // Prometheus says which port it picked in its log.
  Process prometheus(
      {SKRULL_PROMETHEUS, "--config.file=" + config,
       "--storage.tsdb.path=" + (directory.path() / "data").string(),
       "--web.listen-address=127.0.0.1:0", "--log.level=info"});
  const std::regex listening(
      "msg=\"Listening on\" address=(127\\.0\\.0\\.1:[1-9][0-9]*)");
  std::smatch match;
  std::string output;
  REQUIRE(Eventually([&] {
    output = prometheus.Output();
    return std::regex_search(output, match, listening);
  }));
  const std::string address = match[1];
  std::string answer;
  const bool scraped = Eventually([&] {
    try {
      answer =
          HttpGet(address, "/api/v1/query?query=skrull_planned_tokens_total");
    } catch (const std::exception& not_ready) {
      return false;
    }
    return answer.find("\"180\"") != std::string::npos;
  });
  INFO(answer);
  INFO(prometheus.Output());
  CHECK(scraped);
}

}  // namespace
}  // namespace skrull::testing
