// skrullctl compare, in process.
#include <catch2/catch.hpp>

#include "skrull/planner/job.h"
#include "skrull/tests/client/cli_rows.h"
#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using testing::CliResult;
using testing::kWholeSecondsJob;
using testing::Lines;
using testing::ParseRows;
using testing::RunCli;

struct Workshop {
  Workshop() { testing::WriteFile(path("job"), kWholeSecondsJob); }

  std::string path(const std::string& name) const {
    return directory.path() / name;
  }
  CliResult Compare(const std::string& lengths,
                    const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {
        "compare", "--job-spec",   path("job"), "--lengths",
        "-",       "--batch-size", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCli(arguments, lengths);
  }

  testing::TempDir directory;
};

// 1 and 19 tokens take 28 and 1900 seconds of one rank, 10 take 640. Over both
// ranks: 964 + 100 packed, 964 + 200 one by one; 640 + 100 and 640 + 200.
constexpr char kLengths[] = "1\n19\n10\n10\n";

TEST_CASE("skrullctl compare: the table, to the digit", "[cli][compare]") {
  const Workshop workshop;
  const CliResult result = workshop.Compare(
      kLengths, {"--policy", "POLICY_PACKED_STATIC_CP,POLICY_STATIC_CP"});
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  const auto lines = Lines(testing::MaskTimes(result.out));
  REQUIRE(lines.size() == 15);
  CHECK(lines[0] == "job " + workshop.path("job") + ": 2 ranks of 10 tokens");
  CHECK(lines[1] == "lengths -: 4 sequences in 2 batches");
  std::string tables;
  for (const size_t i : {3U, 4U, 5U, 8U, 9U}) tables += lines[i] + "\n";
  CHECK("\n" + tables ==
        R"(
policy                   planned        step  speed-up  (mean)      gap    worst   sharded
POLICY_PACKED_STATIC_CP      2/2   902.000 s    1.11 x  1.11 x   0.00 %   0.00 %  100.00 %
POLICY_STATIC_CP             2/2  1002.000 s    1.00 x  1.00 x  11.46 %  13.51 %  100.00 %
POLICY_PACKED_STATIC_CP   100.00 %            1.0           0 T T T
POLICY_STATIC_CP          100.00 %            2.0           0 T T T
)");
  CHECK_THAT(lines[7], Catch::StartsWith("policy                   peak load  "
                                         "micro-batches  roll-backs"));
  for (const std::string& line : lines) CHECK(line.size() <= 100);
}

TEST_CASE("skrullctl compare: json and csv hold the same, to the bit",
          "[cli][compare]") {
  const Workshop workshop;
  const std::string job = workshop.path("a \"job\", with all");
  testing::WriteFile(job, kWholeSecondsJob);
  const std::vector<std::string> compare = {
      "compare",      "--job-spec", job,        "--lengths",        "-",
      "--batch-size", "2",          "--policy", "POLICY_STATIC_CP", "--format"};
  const auto run = [&](const std::string& format) {
    std::vector<std::string> arguments = compare;
    arguments.push_back(format);
    const CliResult result = RunCli(arguments, std::string(kLengths) + "21\n");
    CHECK(result.exit_code == 1);
    return result.out;
  };
  const auto rows = ParseRows(run("json"));
  REQUIRE(rows.size() == 1);
  const nlohmann::ordered_json& row = rows[0];
  CHECK(testing::WithoutPlanningTimes(row.dump()) ==
        nlohmann::ordered_json(
            {{"job", job},
             {"lengths", "-"},
             {"policy", "POLICY_STATIC_CP"},
             {"batches", 3},
             {"planned_batches", 2},
             {"planned_tokens", 40},
             {"ranks", 2},
             {"mean_predicted_seconds", 1002.0},
             {"mean_gap", ((1164.0 / 1064 - 1) + (840.0 / 740 - 1)) / 2},
             {"worst_gap", 840.0 / 740 - 1},
             {"speed_up", 1.0},
             {"mean_speed_up", 1.0},
             {"speed_up_batches", 2},
             {"max_rank_tokens", 10},
             {"bucket_size_tokens", 10},
             {"peak_load", 1.0},
             {"sharded_token_share", 1.0},
             {"mean_micro_batches", 2.0},
             {"mean_pipeline_seconds", nullptr},
             {"mean_pipeline_bubble", nullptr},
             {"roll_backs", 0},
             {"refused_batches", 1},
             {"refusals", {{"SEQUENCE_TOO_LONG", 1}}}})
                .dump() +
            "\n");
  for (const char* time : {"mean_planning_seconds", "p50_planning_seconds",
                           "worst_planning_seconds"}) {
    CHECK(row[time].get<double>() > 0);
  }
  const auto records = testing::ParseCsv(run("csv"));
  REQUIRE(records.size() == 2);
  REQUIRE(records[0].size() == row.size());
  REQUIRE(records[1].size() == row.size());
  size_t column = 0;
  for (const auto& [key, value] : row.items()) {
    INFO(key);
    CHECK(records[0][column] == key);
    const std::string& field = records[1][column++];
    if (key.ends_with("planning_seconds")) {
      CHECK(std::stod(field) > 0);
    } else if (value.is_string()) {
      CHECK(field == value.get<std::string>());
    } else if (value.is_number()) {
      CHECK(std::stod(field) == value.get<double>());
    } else if (value.is_null()) {
      CHECK(field.empty());
    } else {
      CHECK(field == "SEQUENCE_TOO_LONG=1");
    }
  }
}

TEST_CASE("skrullctl compare: every policy by default, on every job and list",
          "[cli][compare]") {
  const Workshop workshop;
  testing::WriteFile(workshop.path("list"), "5\n6\n7\n");
  const CliResult result =
      RunCli({"compare", "--job-spec", workshop.path("job"), "--job-spec",
              testing::ExampleJob("qwen2.5-0.5b"), "--lengths",
              workshop.path("list"), "--lengths", "-", "--format", "json"},
             kLengths);
  INFO(result.err);
  CHECK(result.exit_code == 0);
  const auto rows = ParseRows(result.out);
  std::vector<std::string> names;
  for (Policy policy : AllPolicies()) names.push_back(PolicyName(policy));
  REQUIRE(rows.size() == 4 * names.size());
  size_t at = 0;
  for (const std::string& job :
       {workshop.path("job"), testing::ExampleJob("qwen2.5-0.5b")}) {
    for (const std::string& list : {workshop.path("list"), std::string("-")}) {
      for (const std::string& name : names) {
        INFO(job << " " << list << " " << name);
        CHECK(rows[at]["job"] == job);
        CHECK(rows[at]["lengths"] == list);
        CHECK(rows[at]["policy"] == name);
        CHECK(rows[at]["planned_batches"] == 1);
        CHECK(rows[at]["worst_gap"].get<double>() >= -1e-9);
        if (name == "POLICY_STATIC_CP") CHECK(rows[at]["speed_up"] == 1.0);
        ++at;
      }
    }
  }
}

TEST_CASE("skrullctl compare: the base need not be listed; policies once each",
          "[cli][compare]") {
  const Workshop workshop;
  const auto policy = "POLICY_PACKED_STATIC_CP";
  const auto rows =
      ParseRows(workshop
                    .Compare(kLengths, {"--policy", policy, "--policy",
                                        std::string(policy) + "," + policy,
                                        "--format", "json"})
                    .out);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0]["speed_up"] == 2004.0 / 1804);
  CHECK(rows[0]["mean_speed_up"] == (1164.0 / 1064 + 840.0 / 740) / 2);
}

TEST_CASE("skrullctl compare: refused batches are counted, the rest compared",
          "[cli][compare]") {
  const Workshop workshop;
  const CliResult some = workshop.Compare(
      "21\n1\n1\n19\n10\n10\n0\n", {"--policy", "POLICY_PACKED_STATIC_CP"});
  CHECK(some.exit_code == 1);
  for (const char* part :
       {"POLICY_PACKED_STATIC_CP      2/4  902.000 s    1.11 x",
        "refused by POLICY_PACKED_STATIC_CP:\n"
        "  SEQUENCE_TOO_LONG: 1 batch (0)\n    lengths: 1 sequence is longer",
        "  FIELD_INVALID: 1 batch (3)\n    lengths: not in",
        "refused by POLICY_STATIC_CP, which speed-ups are over:"}) {
    CHECK_THAT(some.out, Catch::Contains(part));
  }
  const CliResult none =
      workshop.Compare("21\n", {"--policy", "POLICY_STATIC_CP"});
  CHECK(none.exit_code == 1);
  CHECK_THAT(none.out,
             Catch::Contains(
                 "POLICY_STATIC_CP      0/1     -         -       -    -"));
  const CliResult empty = workshop.Compare("# nothing\n", {});
  CHECK(empty.exit_code == 1);
  CHECK_THAT(empty.out, Catch::Contains("EMPTY_BATCH: 1 batch (0)"));
}

TEST_CASE("skrullctl compare: a policy that runs out of memory beside others",
          "[cli][compare]") {
  const Workshop workshop;
  testing::WriteFile(
      workshop.path("job"),
      std::string(kWholeSecondsJob) + "heuristic { roll_back: false }");
  // 1 lies on one rank, and half of 19 is 9.5: no room without roll-back.
  const CliResult result = workshop.Compare(
      "1\n19\n10\n10\n", {"--policy", "POLICY_SKRULL,POLICY_PACKED_STATIC_CP",
                          "--format", "json"});
  CHECK(result.exit_code == 1);
  const auto rows = ParseRows(result.out);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["planned_batches"] == 1);
  CHECK(rows[0]["refusals"].dump() == R"({"SIMULATED_OUT_OF_MEMORY":1})");
  // Over the batch that it planned: 840 / 740.
  CHECK(rows[0]["speed_up_batches"] == 1);
  CHECK(rows[0]["speed_up"] == 840.0 / 740);
  CHECK(rows[1]["planned_batches"] == 2);
  CHECK(rows[1]["speed_up_batches"] == 2);
}

TEST_CASE("skrullctl compare and simulate: stages and what they idle",
          "[cli][compare][simulate]") {
  // One micro-batch of 740 seconds through two stages: each is busy so long,
  // and idles while the other is.
  const Workshop workshop;
  std::string job = kWholeSecondsJob;
  job.insert(job.find("cp_size"), "pp_size: 2 ");
  testing::WriteFile(workshop.path("job"),
                     job + "policy: POLICY_PACKED_STATIC_CP");
  const CliResult compared =
      workshop.Compare("10\n10\n21\n", {"--policy", "POLICY_PACKED_STATIC_CP"});
  CHECK_THAT(compared.out,
             Catch::Contains("\n\n"
                             "policy                   step in pipeline  "
                             "stages idle\n"
                             "POLICY_PACKED_STATIC_CP        1480.000 s      "
                             "50.00 %\n\nrefused"));
  const CliResult simulated =
      RunCli({"simulate", "--job-spec", workshop.path("job"), "--lengths", "-",
              "--batch-size", "2", "--bucket", "9"},
             "10\n10\n");
  CHECK_THAT(simulated.out,
             Catch::Contains("\n\nrow  step in pipeline  stages idle\n"
                             "0          1480.000 s      50.00 %\n"
                             "1"));
  const auto rows =
      ParseRows(workshop
                    .Compare("10\n10\n", {"--policy", "POLICY_PACKED_STATIC_CP",
                                          "--format", "json"})
                    .out);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0]["mean_predicted_seconds"] == 740.0);
  CHECK(rows[0]["mean_pipeline_seconds"] == 1480.0);
  CHECK(rows[0]["mean_pipeline_bubble"] == 0.5);
  // With one stage there is nothing to show.
  testing::WriteFile(workshop.path("job"), kWholeSecondsJob);
  CHECK_THAT(workshop.Compare("10\n10\n", {}).out,
             !Catch::Contains("pipeline"));
}

TEST_CASE("skrullctl compare: --batches stops early", "[cli][compare]") {
  const Workshop workshop;
  for (const auto& [limit, batches] : {std::pair{"1", 1}, {"2", 2}, {"9", 2}}) {
    const auto rows = ParseRows(
        workshop.Compare(kLengths, {"--batches", limit, "--format", "json"})
            .out);
    REQUIRE_FALSE(rows.empty());
    CHECK(rows[0]["batches"] == batches);
  }
}

TEST_CASE("skrullctl compare: progress only where it is wanted",
          "[cli][compare]") {
  const Workshop workshop;
  const std::vector<std::string> policy = {"--policy", "POLICY_STATIC_CP",
                                           "--progress"};
  const auto err = [&](const std::string& when) {
    std::vector<std::string> more = policy;
    more.push_back(when);
    const CliResult result = workshop.Compare(kLengths, more);
    CHECK(result.exit_code == 0);
    return result.err;
  };
  CHECK(err("auto").empty());  // a file
  CHECK(err("never").empty());
  // Shown, and erased.
  CHECK(err("always") ==
        "\r\033[K[##########----------] 1 of 2 batches planned\r\033[K");
}

TEST_CASE("skrullctl compare: usage errors exit 2", "[cli][compare]") {
  const Workshop workshop;
  const std::string job = workshop.path("job");
  testing::WriteFile(workshop.path("list"), "1\n");
  testing::WriteFile(workshop.path("bad"), "one\n");
  const std::string list = workshop.path("list");
  const std::vector<std::vector<std::string>> usages = {
      {"compare"},
      {"compare", "--job-spec", job},
      {"compare", "--lengths", list},
      {"compare", "--job-spec", job, "--lengths", workshop.path("bad")},
      {"compare", "--job-spec", list, "--lengths", list},
      {"compare", "--job-spec", job, "--lengths", workshop.path("absent")},
      {"compare", "--job-spec", job, "--lengths", "-", "--lengths", "-"},
      {"compare", "--job-spec", job, "--lengths", list, "--policy", "FAST"},
      {"compare", "--job-spec", job, "--lengths", list, "--batches", "0"},
      {"compare", "--job-spec", job, "--lengths", list, "--batch-size", "0"},
      {"compare", "--job-spec", job, "--lengths", list, "--format", "xml"},
      {"compare", "--job-spec", job, "--lengths", list, "--progress", "often"},
      {"compare", "--job-spec", job, "--lengths", list, "extra"},
      {"compare", "--job-spec", job, "--lengths", list, "--offline", "--server",
       "127.0.0.1:1"},
  };
  for (const std::vector<std::string>& usage : usages) {
    const CliResult result = RunCli(usage);
    std::string line;
    for (const std::string& word : usage) line += word + " ";
    INFO(line << "\n" << result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_FALSE(result.err.empty());
  }
}

}  // namespace
}  // namespace skrull
