// skrullctl report: what the page is made of. report_in_browser.py opens it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "skrull/cli/plan_json.h"
#include "skrull/cli/report_html.h"
#include "skrull/cli/why_sharded.h"
#include "skrull/planner/planner.h"
#include "skrull/server/convert.h"
#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using cli::ShardReason;
using nlohmann::json;
using testing::CliResult;
using testing::RunCli;
using testing::TempDir;
using testing::WriteFile;

// Two DP ranks of two ranks that hold 1000 tokens each; gathered K/V counts.
constexpr char kJob[] = R"(
  model { hidden_size: 896 layer_count: 24 attention_head_count: 14 }
  parallelism { dp_size: 2 cp_size: 2 block_scope: BLOCK_SCOPE_POOL }
  memory { bucket_size_tokens: 1000 bytes_per_token: 100 device_bytes: 200000
           gather_bytes_per_token: 10 }
  cost { seconds_per_micro_batch: 0.001
    intra_node { seconds_per_collective: 4.1e-05 seconds_per_byte: 6e-12 } }
)";
constexpr char kLengths[] = "700\n30\n3900\n30\n900\n1500\n1\n400\n1000\n12\n";

struct Workshop {
  Workshop() {
    WriteFile(path("job"), kJob);
    WriteFile(path("lengths"), kLengths);
  }
  std::string path(const std::string& name) const {
    return directory.path() / name;
  }
  CliResult Run(const std::string& command,
                const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {command, "--job-spec", path("job"),
                                      "--lengths", path("lengths")};
    words.insert(words.end(), more.begin(), more.end());
    return RunCli(words);
  }

  TempDir directory;
};

size_t CountOf(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

constexpr char kOpen[] = "<script type=\"application/json\" id=\"data\">";

// The text of the element that holds the data, as a browser delimits it.
std::string DataText(const std::string& page) {
  const size_t begin = page.find(kOpen) + std::string(kOpen).size();
  return page.substr(begin, page.find("</script", begin) - begin);
}

TEST_CASE("skrullctl report: one file that loads nothing", "[cli][report]") {
  const std::string page = cli::kReportHtml;
  CHECK(page ==
        testing::ReadFile(testing::SourceDir() / "client/cli/report.html"));
  CHECK(CountOf("@SKRULL_REPORT_DATA@", page) == 1);
  CHECK(CountOf(kOpen, page) == 1);
  CHECK_THAT(page, Catch::Contains("default-src 'none'"));
  // Names of namespaces apart, nothing names another place.
  for (const char* word : {"src=", "href=", "@import", "url(", "fetch(",
                           "XMLHttpRequest", "innerHTML", "import("}) {
    INFO(word);
    CHECK(CountOf(word, page) == 0);
  }
  CHECK(CountOf("://", page) == 1);
  CHECK_THAT(page, Catch::Contains("'http://www.w3.org/2000/svg'"));
}

TEST_CASE("skrullctl report: holds the plan", "[cli][report]") {
  const Workshop workshop;
  const std::vector<std::string> more = {
      "--policy", "POLICY_OPTIMIZED", "--step", "7", "--name", "run7"};
  const CliResult result = workshop.Run("report", more);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  std::vector<std::string> plan_words = more;
  plan_words.insert(plan_words.end(), {"--format", "json"});
  const json plan = json::parse(workshop.Run("plan", plan_words).out);
  const json data = json::parse(DataText(result.out));
  CHECK(data["job"] == "run7");
  CHECK(data["step"] == 7);
  CHECK(data["digest"] == plan["digest"]);
  const double predicted = plan["summary"]["predicted_seconds"];
  CHECK(data["summary"]["predicted_seconds"] == predicted);
  CHECK(data["lengths"].size() == 10);
  CHECK(data["lengths"][2] == 3900);
  REQUIRE(data["ranks"].size() == 4);
  int64_t fullest = 0;
  for (const json& rank : data["ranks"]) {
    const int64_t tokens = rank["local_tokens"].get<int64_t>() +
                           rank["sharded_tokens"].get<int64_t>();
    fullest = std::max(fullest, tokens);
    CHECK(rank["bytes"].get<double>() >= 100.0 * static_cast<double>(tokens));
    CHECK(rank["bytes"].get<double>() <=
          data["spec"]["byte_budget"].get<double>());
  }
  CHECK(fullest == plan["summary"]["max_rank_tokens"]);

  // Every placement is there, and every rank's track tiles the step.
  std::set<int64_t> sequences;
  REQUIRE(data["micro_batches"].size() == plan["micro_batches"].size());
  for (size_t i = 0; i < data["micro_batches"].size(); ++i) {
    const json& have = data["micro_batches"][i]["placements"];
    const json& want = plan["micro_batches"][i]["placements"];
    REQUIRE(have.size() == want.size());
    for (size_t k = 0; k < have.size(); ++k) {
      CHECK(have[k] == json({want[k]["sequence"], want[k]["first_rank"],
                             want[k]["degree"]}));
      sequences.insert(have[k][0].get<int64_t>());
    }
  }
  CHECK(sequences.size() == 10);
  CHECK(data["tick_seconds"].get<double>() * 1e7 == Approx(predicted));
  REQUIRE(data["rank_tracks"].size() == 4);
  const std::string exchange = "exchange";
  for (const json& index : data["rank_tracks"]) {
    const json& track = data["tracks"].at(index.get<size_t>());
    REQUIRE(track.size() % 4 == 0);
    int64_t at = 0;
    for (size_t i = 0; i < track.size(); i += 4) {
      if (data["activities"].at(track[i + 1].get<size_t>()) == exchange) {
        continue;
      }
      CHECK(track[i + 2] == at);
      at = track[i + 3];
    }
    CHECK(at == 10000000);
  }

  std::map<std::string, double> others;
  for (const json& other : data["comparisons"]) {
    others[other["policy"]] = other["predicted_seconds"];
  }
  REQUIRE(others.size() == 3);
  for (const auto& [policy, seconds] : others) {
    const json other = json::parse(
        workshop.Run("plan", {"--policy", policy, "--format", "json"}).out);
    CHECK(seconds == other["summary"]["predicted_seconds"]);
  }
  CHECK(data["sharded"].size() ==
        plan["summary"]["sharded_sequence_count"].get<size_t>());
}

TEST_CASE("skrullctl report: --batch, --plan and --output", "[cli][report]") {
  const Workshop workshop;
  const std::string plans = workshop.path("plans");
  const std::string page = workshop.path("page");
  const std::vector<std::string> four = {"--batch-size", "4"};
  std::vector<std::string> words = four;
  words.insert(words.end(), {"--format", "json"});
  WriteFile(plans, workshop.Run("plan", words).out);
  words = {"--batch-size", "4", "--batch", "2"};
  const CliResult here = workshop.Run("report", words);
  words.insert(words.end(), {"--plan", plans, "--output", page});
  const CliResult file = workshop.Run("report", words);
  INFO(file.err);
  CHECK(file.exit_code == 0);
  CHECK(file.out.empty());
  CHECK(testing::ReadFile(page) == here.out);
  const json data = json::parse(DataText(here.out));
  CHECK(data["step"] == 2);
  CHECK(data["lengths"] == json({1000, 12}));
}

TEST_CASE("skrullctl report: no job name can leave its string",
          "[cli][report]") {
  const Workshop workshop;
  absl::StatusOr<cli::PlanLine> line =
      cli::ParsePlanLine(workshop.Run("plan", {"--format", "json"}).out);
  REQUIRE(line.ok());
  const std::string name =
      "</script><script>alert(1)</script><!--\"'&\xe2\x80\xa8\\u003c\x01";
  line->plan.set_job(name);
  line->plan.set_digest(PlanDigest(line->plan));
  std::string text;
  cli::AppendJson(line->plan, &text);
  WriteFile(workshop.path("plans"), text);
  const CliResult result =
      workshop.Run("report", {"--plan", workshop.path("plans")});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const std::string data = DataText(result.out);
  CHECK(data.find_first_of("<>&\n") == std::string::npos);
  CHECK(json::parse(data)["job"] == name);
  const std::string page = cli::kReportHtml;
  CHECK(CountOf("<script", result.out) == CountOf("<script", page));
  CHECK(CountOf("</script", result.out) == CountOf("</script", page));
}

TEST_CASE("skrullctl report: exit codes are those of plan", "[cli][report]") {
  const Workshop workshop;
  const auto check = [](const CliResult& result, int exit_code,
                        const std::string& message) {
    INFO(result.err);
    CHECK(result.exit_code == exit_code);
    CHECK(result.out.empty());
    CHECK_THAT(result.err, Catch::Contains(message));
  };
  check(workshop.Run("report", {"--batch", "1"}), 2, "there are 1 batches");
  check(workshop.Run("report", {"--batch", "-1"}), 2, "--batch");
  check(workshop.Run("report", {"--policy", "POLICY_NONE"}), 2, "--policy");
  check(workshop.Run("report", {"--output", workshop.path("no/folder")}), 2,
        "no/folder");
  check(workshop.Run("report", {"--output", "/dev/full"}), 2, "/dev/full");
  check(workshop.Run("report", {"--plan", workshop.path("nowhere")}), 2,
        "nowhere");
  const std::string plan = workshop.Run("plan", {"--format", "json"}).out;
  WriteFile(workshop.path("plans"), plan);
  WriteFile(workshop.path("lengths"), std::string("701\n") + (kLengths + 4));
  check(workshop.Run("report", {"--plan", workshop.path("plans")}), 1, "701");
  WriteFile(workshop.path("lengths"), "5\n9000\n");
  check(workshop.Run("report"), 1, "9000");
  WriteFile(workshop.path("lengths"), "5\nx\n");
  check(workshop.Run("report"), 2, "line 2");
}

// h = h_kv = 1 and one layer: alone, S tokens take 24 S + 4 S^2 seconds. Two
// ranks of 10 tokens; an exchange takes 5.
Job UnitJob() {
  JobSpec spec;
  spec.model.hidden_size = 1;
  spec.model.layer_count = 1;
  spec.model.attention_head_count = 1;
  spec.parallelism.cp_size = 2;
  spec.memory.bucket_size_tokens = 10;
  spec.cost.seconds_per_flop = 1;
  spec.cost.pass_multiplier = 1;
  spec.cost.collectives_per_layer = 1;
  spec.cost.intra_node = {5, 0, {}};
  return *Job::Create(spec);
}

TEST_CASE("WhySharded: length, room, time, and no reason but the policy",
          "[cli][report]") {
  const Job job = UnitJob();
  const std::vector<int64_t> lengths = {1, 3, 6, 5, 5, 4, 1, 2, 12};
  Plan plan;
  for (const std::vector<SequencePlacement>& placements :
       std::vector<std::vector<SequencePlacement>>{
           // 3 + 108 of rank 1; its share of 1 is 14: 122.
           {{0, 1, 0, 2}, {1, 3, 1, 1}},
           // Each rank holds 5, and 6 would make 11. 220 + 144 = 364.
           {{2, 6, 0, 2}, {3, 5, 0, 1}, {4, 5, 1, 1}},
           // Rank 1 ends at 64 + 80 = 144; all of 4 on rank 0 at 28 + 160 =
           // 188, on rank 1 at 64 + 160.
           {{5, 4, 0, 2}, {6, 1, 0, 1}, {7, 2, 1, 1}},
           // 5 + 432.
           {{8, 12, 0, 2}}}) {
    plan.micro_batches.push_back({.placements = placements});
  }
  FinishPlan(job, lengths, &plan);
  const double predicted = 122 + 364 + 144 + 437;
  REQUIRE(plan.summary.predicted_seconds == predicted);

  struct Row {
    int32_t sequence;
    int32_t micro_batch;
    double share_seconds;
    double local_seconds;
    ShardReason reason;
    int32_t local_rank;
    double local_step_seconds;
  };
  const Row rows[] = {
      {8, 3, 432, 864, ShardReason::kLength, 0, 0},
      {2, 1, 144, 288, ShardReason::kRoom, 0, 0},
      {5, 2, 80, 160, ShardReason::kTime, 0, predicted + 188 - 144},
      {0, 0, 14, 28, ShardReason::kPolicy, 0, predicted + 108 - 122}};
  const std::vector<cli::ShardedSequence> all = cli::WhySharded(job, plan, 100);
  REQUIRE(all.size() == 4);
  for (size_t i = 0; i < all.size(); ++i) {
    INFO(i);
    CHECK(all[i].placement.sequence == rows[i].sequence);
    CHECK(all[i].placement.token_count ==
          lengths[static_cast<size_t>(rows[i].sequence)]);
    CHECK(all[i].micro_batch == rows[i].micro_batch);
    CHECK(all[i].share_seconds == rows[i].share_seconds);
    CHECK(all[i].exchange_seconds == 5);
    CHECK(all[i].local_seconds == rows[i].local_seconds);
    CHECK(all[i].reason == rows[i].reason);
    CHECK(all[i].local_rank == rows[i].local_rank);
    CHECK(all[i].local_step_seconds == rows[i].local_step_seconds);
  }
  const std::vector<cli::ShardedSequence> two = cli::WhySharded(job, plan, 2);
  REQUIRE(two.size() == 2);
  CHECK(two[1].placement.sequence == 2);
}

}  // namespace
}  // namespace skrull
