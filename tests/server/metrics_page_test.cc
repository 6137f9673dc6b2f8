// The metrics page of a real daemon, as promtool and a real Prometheus see it.
#include <catch2/catch.hpp>
#include <ctime>
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

// What stands in backquotes at the start of the lines of the document's tables,
// from the heading `from` up to the heading `to`, if there is one.
std::set<std::string> Documented(const std::string& from,
                                 const std::string& to) {
  std::ifstream file(SKRULL_SOURCE_DIR "/docs/metrics.md");
  std::set<std::string> names;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line == from) inside = true;
    if (!to.empty() && line == to) break;
    if (inside && line.starts_with("| `")) {
      names.insert(line.substr(3, line.find('`', 3) - 3));
    }
  }
  return names;
}

std::set<std::string> DocumentedMetrics() {
  return Documented("## The daemon", "## Values of labels");
}

// Those of closed sets, and that of histograms.
std::set<std::string> DocumentedLabels() {
  std::set<std::string> labels = Documented("## Values of labels", "");
  labels.insert({"le", "compiler", "version"});
  return labels;
}

TEST_CASE("Metrics: promtool finds no fault with the page",
          "[server][metrics]") {
  TempDir store;
  Daemon daemon({"--job_metrics=10",
                 "--store=sqlite:" + (store.path() / "skrull.db").string()});
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
  CHECK(daemon.Metric("skrull_plan_dp_imbalance_ratio_count") == 1);
  CHECK(daemon.Metric("skrull_predicted_seconds_total") >=
        daemon.Metric("skrull_lower_bound_seconds_total"));
  CHECK(daemon.Metric("skrull_predicted_rank_seconds_total") ==
        Approx(4 * daemon.Metric("skrull_predicted_seconds_total")));
  CHECK(daemon.Metric("skrull_queue_wait_seconds_count") >= 1);
  CHECK(daemon.Metric("skrull_planning_busy_seconds_total") > 0);
  CHECK(daemon.Metric("skrull_planning_threads") == 2);
  CHECK(daemon.Metric("skrull_planning_queue_limit") == 1024);
  CHECK(daemon.Metric("skrull_waits_limit") == 65536);
  CHECK(daemon.Metric("skrull_cached_plans") == 1);
  CHECK(daemon.Metric("skrull_cached_plan_bytes") > 0);
  CHECK(daemon.Metric("skrull_rpc_seconds_count{method=\"PlanBatch\"}") == 2);
  CHECK(daemon.Metric("skrull_rpcs_in_flight{method=\"PlanBatch\"}") == 0);
  CHECK(daemon.Metric("skrull_store_operations_total{operation=\"commit_plan\","
                      "outcome=\"ok\"}") == 1);
  CHECK(daemon.Metric(
            "skrull_store_seconds_count{operation=\"commit_plan\"}") == 1);
  CHECK(daemon.Metric("process_resident_memory_bytes") > 1e6);
  CHECK(daemon.Metric("process_open_fds") >= 3);
  CHECK(daemon.Metric("process_start_time_seconds") ==
        Approx(static_cast<double>(std::time(nullptr))).margin(600));
  const std::string page = daemon.Scrape();
  CHECK(page.find("secret-job-name") == std::string::npos);
  std::set<std::string> labels;
  const std::regex label("[{,]([a-z_]+)=\"");
  for (auto it = std::sregex_iterator(page.begin(), page.end(), label);
       it != std::sregex_iterator(); ++it) {
    labels.insert((*it)[1]);
  }
  CHECK(labels == DocumentedLabels());
}

TEST_CASE("Metrics: the page has the metrics that docs/metrics.md lists",
          "[server][metrics][docs]") {
  TempDir store;
  Daemon daemon({"--job_metrics=10",
                 "--store=sqlite:" + (store.path() / "skrull.db").string()});
  Exercise(daemon);
  std::set<std::string> served;
  const std::string page = daemon.Scrape();
  const std::regex type("# TYPE ([a-z_]+) ");
  for (auto it = std::sregex_iterator(page.begin(), page.end(), type);
       it != std::sregex_iterator(); ++it) {
    served.insert((*it)[1]);
  }
  CHECK(served == DocumentedMetrics());
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
