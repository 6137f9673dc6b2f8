// Every query of rules, alerts and dashboard, put to a real Prometheus that
// scrapes a real daemon under load: each must be understood and must have an
// answer.
#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "skrull/cli/http_get.h"
#include "skrull/tests/server/service_test_util.h"

namespace skrull::testing {
namespace {

using nlohmann::json;

namespace fs = std::filesystem;

const fs::path kDeploy = fs::path(SKRULL_SOURCE_DIR) / "deploy";

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  std::ifstream file(path);
  REQUIRE(file.good());
  text << file.rdbuf();
  return text.str();
}

// Replaces the one place where `from` is in `text`.
void ReplaceOne(std::string* text, const std::string& from,
                const std::string& to) {
  const size_t at = text->find(from);
  INFO(from);
  REQUIRE(at != std::string::npos);
  REQUIRE(text->find(from, at + 1) == std::string::npos);
  text->replace(at, from.size(), to);
}

std::string UrlEncoded(const std::string& text) {
  std::string encoded;
  for (const char c : text) {
    char code[4];
    std::snprintf(code, sizeof code, "%%%02X", static_cast<unsigned char>(c));
    encoded += code;
  }
  return encoded;
}

// Prometheus as deploy/prometheus configures it, but for the daemon's address
// and how often it looks.
class Prometheus {
 public:
  explicit Prometheus(const std::string& target) {
    for (const char* name : {"rules.yml", "alerts.yml"}) {
      fs::copy_file(kDeploy / "prometheus" / name, directory_.path() / name);
    }
    std::string config = ReadFile(kDeploy / "prometheus/scrape.yml");
    ReplaceOne(&config, "127.0.0.1:7420", target);
    ReplaceOne(&config, "scrape_interval: 15s", "scrape_interval: 1s");
    ReplaceOne(&config, "evaluation_interval: 15s", "evaluation_interval: 1s");
    const fs::path path = directory_.path() / "prometheus.yml";
    std::ofstream(path) << config;
    process_.emplace(std::vector<std::string>{
        SKRULL_PROMETHEUS, "--config.file=" + path.string(),
        "--storage.tsdb.path=" + (directory_.path() / "data").string(),
        "--web.listen-address=127.0.0.1:0", "--log.level=info"});
    // It says which port it picked in its log.
    const std::regex listening(
        "msg=\"Listening on\" address=(127\\.0\\.0\\.1:[1-9][0-9]*)");
    std::smatch match;
    std::string output;
    REQUIRE(Eventually([&] {
      output = process_->Output();
      return std::regex_search(output, match, listening);
    }));
    address_ = match[1];
    REQUIRE(Eventually([&] { return Page("/-/ready").ok(); }));
  }

  // The "data" of an answer.
  json Get(const std::string& path) const {
    const absl::StatusOr<std::string> page = Page("/api/v1/" + path);
    INFO(page.status());
    REQUIRE(page.ok());
    return json::parse(*page)["data"];
  }
  // Values of a query's series, now.
  std::vector<std::string> Query(const std::string& query) const {
    const json data = Get("query?query=" + UrlEncoded(query));
    std::vector<std::string> values;
    for (const json& series : data["result"]) {
      values.push_back(series["value"][1]);
    }
    return values;
  }

 private:
  absl::StatusOr<std::string> Page(const std::string& path) const {
    return cli::HttpGet("http://" + address_ + path, std::chrono::seconds(30),
                        64 << 20);
  }

  TempDir directory_;
  std::optional<Process> process_;
  std::string address_;
};

// Gives every metric something to say, again and again, until it is destroyed.
class Load {
 public:
  explicit Load(const std::string& address)
      : thread_([this, address] { Run(address); }) {}
  ~Load() {
    stop_ = true;
    thread_.join();
  }

 private:
  void Run(const std::string& address) {
    Client client(address);
    client.CreateJob("run7", SmallSpec(2, 2, 1000));
    const std::unique_ptr<Pending<v1::RankPlan>> waiting =
        client.StartRankPlan("run7", 1'000'000, 0);
    for (int64_t step = 0; !stop_; ++step) {
      for (int policy = 1; policy <= v1::Policy_MAX; ++policy) {
        v1::PlanBatchRequest request = Batch("run7", 10 * step + policy,
                                             {500, 30, 1200, 7, 3 + step % 50});
        request.set_policy(static_cast<v1::Policy>(policy));
        client.Plan(request);
      }
      client.RankPlan("run7", 10 * step + 1, 1);
      client.Plan(Batch("run7", 10 * step, {50'000}));  // refused
      Report(client, "run7", 10 * step + 1, v1::STEP_OUTCOME_OK);
      // Of jobs of their own: a bucket falls until it can fall no more.
      const std::string tight = "tight" + std::to_string(step / 20);
      client.CreateJob(tight, SmallSpec(2, 2, 1000));
      client.Plan(Batch(tight, step, {900, 800, 950, 700}));
      Report(client, tight, step, v1::STEP_OUTCOME_OUT_OF_MEMORY);
      v1::Job job;
      grpc::ClientContext context;
      v1::GetJobRequest get;
      get.set_name("run7");
      client.stub().GetJob(&context, get, &job);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    waiting->context.TryCancel();
    waiting->status.wait();
  }

  // How the step went, on all four ranks of a job.
  static void Report(Client& client, const std::string& job, int64_t step,
                     v1::StepOutcome outcome) {
    for (int rank = 0; rank < 4; ++rank) {
      v1::ReportStepRequest request;
      request.set_job(job);
      request.mutable_report()->set_step(step);
      request.mutable_report()->set_rank(rank);
      request.mutable_report()->set_outcome(outcome);
      request.mutable_report()->mutable_step_time()->set_nanos(2'000'000);
      request.mutable_report()->set_peak_bytes(1'000'000);
      v1::ReportStepResponse response;
      grpc::ClientContext context;
      client.stub().ReportStep(&context, request, &response);
    }
  }

  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// A query as Grafana would send it, with all of every variable chosen.
std::string Filled(std::string query) {
  query = std::regex_replace(query, std::regex("\\$__rate_interval"), "1m");
  return std::regex_replace(query, std::regex("\\$[a-z]+"), ".*");
}

// Panel and reference -> query.
std::map<std::string, std::string> DashboardQueries(const json& dashboard) {
  std::map<std::string, std::string> queries;
  for (const json& panel : dashboard["panels"]) {
    if (panel["type"] == "row") continue;
    for (const json& target : panel["targets"]) {
      queries[std::to_string(panel["id"].get<int>()) + " " +
              panel["title"].get<std::string>() + " " +
              target["refId"].get<std::string>()] = Filled(target["expr"]);
    }
  }
  return queries;
}

// True if some series of the answer is a number.
bool HasNumber(const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    if (value != "NaN") return true;
  }
  return false;
}

// Names of metrics and of recorded series in a query.
std::set<std::string> NamesIn(const std::string& query) {
  std::set<std::string> names;
  const std::regex name("\\b([a-z_]+:)?(skrull|process)_[a-z_]+(:[a-z0-9_]+)?");
  for (std::sregex_iterator it(query.begin(), query.end(), name), end;
       it != end; ++it) {
    names.insert(it->str());
  }
  return names;
}

TEST_CASE("Monitoring: every query has an answer under load",
          "[deploy][monitoring]") {
  TempDir store;
  Daemon daemon({"--store=sqlite:" + (store.path() / "store.db").string(),
                 "--job_metrics=10"});
  const Load load(daemon.address());
  const Prometheus prometheus(daemon.metrics_address());
  const json dashboard = json::parse(ReadFile(kDeploy / "grafana/skrull.json"));

  // Queries that have no answer yet.
  std::map<std::string, std::string> left = DashboardQueries(dashboard);
  REQUIRE(left.size() > 40);
  std::set<std::string> recorded;
  std::set<std::string> named;
  for (const auto& [where, query] : left) named.merge(NamesIn(query));
  json groups;
  REQUIRE(Eventually([&] {
    groups = prometheus.Get("rules")["groups"];
    return groups.size() > 6;
  }));
  for (const json& group : groups) {
    for (const json& rule : group["rules"]) {
      const std::string name = rule["name"];
      named.merge(NamesIn(rule["query"]));
      if (rule["type"] == "recording") {
        recorded.insert(name);
        left["recorded " + name] = name;
      }
    }
  }
  REQUIRE(recorded.size() > 20);
  const bool answered = Eventually([&] {
    std::erase_if(left, [&](const auto& entry) {
      INFO(entry.first << ": " << entry.second);
      return HasNumber(prometheus.Query(entry.second));
    });
    if (!left.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    return left.empty();
  });
  for (const auto& [where, query] : left) {
    UNSCOPED_INFO("no answer: " << where << ": " << query);
  }
  CHECK(answered);

  // Alerts are about what may never happen; their metrics exist all the same.
  const std::string page = "\n" + daemon.Scrape();
  for (const std::string& name : named) {
    INFO(name);
    CHECK((recorded.contains(name) ||
           page.find("\n" + name + "{") != std::string::npos ||
           page.find("\n" + name + " ") != std::string::npos));
  }
  const json evaluated = prometheus.Get("rules");
  REQUIRE_FALSE(evaluated["groups"].empty());
  for (const json& group : evaluated["groups"]) {
    for (const json& rule : group["rules"]) {
      INFO(rule["name"]);
      CHECK(rule["health"] == "ok");
    }
  }
  // What the variables choose from.
  for (const json& variable : dashboard["templating"]["list"]) {
    if (variable["type"] != "query") continue;
    const std::string definition = variable["definition"];
    INFO(definition);
    std::smatch match;
    REQUIRE(std::regex_match(definition, match,
                             std::regex("label_values\\((.+), (\\w+)\\)")));
    CHECK_FALSE(prometheus
                    .Get("label/" + match[2].str() +
                         "/values?match[]=" + UrlEncoded(Filled(match[1])))
                    .empty());
  }
}

}  // namespace
}  // namespace skrull::testing
