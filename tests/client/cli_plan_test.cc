// skrullctl plan and check, without a daemon.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using nlohmann::json;
using testing::CliResult;
using testing::ExampleJob;
using testing::Lines;
using testing::RunCli;
using testing::TempDir;
using testing::WriteFile;

// N = 2 ranks of 10 tokens.
constexpr char kSmallJob[] = R"(
  model { hidden_size: 64 layer_count: 2 attention_head_count: 4 }
  parallelism { cp_size: 2 }
  memory { bucket_size_tokens: 10 }
)";

// A directory with the small job in it.
struct Workshop {
  Workshop() { WriteFile(path("job.textproto"), kSmallJob); }

  std::string path(const std::string& name) const {
    return directory.path() / name;
  }
  std::string Write(const std::string& name, const std::string& text) const {
    WriteFile(path(name), text);
    return path(name);
  }
  // Plans lengths given as text.
  CliResult Plan(const std::string& lengths,
                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        "plan",     "--job-spec", path("job.textproto"), "--lengths", "-",
        "--format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCli(arguments, lengths);
  }
  CliResult Check(const std::string& lengths, const std::string& plans,
                  const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"check",
                                          "--job-spec",
                                          path("job.textproto"),
                                          "--lengths",
                                          Write("lengths", lengths),
                                          "--plan",
                                          Write("plans", plans)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCli(arguments);
  }

  TempDir directory;
};

TEST_CASE("skrullctl plan: prints every field, zero or not, in order",
          "[cli]") {
  const Workshop workshop;
  const CliResult result = workshop.Plan("1\n19\n", {"--step", "7"});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  REQUIRE(Lines(result.out).size() == 1);
  const auto plan = nlohmann::ordered_json::parse(result.out);
  std::string keys;
  for (const auto& [key, value] : plan.items()) keys += key + " ";
  CHECK(keys ==
        "job step attempt digest policy calibration_epoch micro_batches "
        "blocks summary ");
  CHECK(plan["job"] == "");
  CHECK(plan["step"].is_number_integer());
  CHECK(plan["step"] == 7);
  CHECK(plan["attempt"] == 0);
  CHECK(plan["policy"] == "POLICY_OPTIMIZED");
  CHECK(plan["calibration_epoch"] == 0);
  CHECK(plan["digest"].get<std::string>().size() == 64);
  keys.clear();
  for (const auto& [key, value] : plan["summary"].items()) keys += key + " ";
  CHECK(keys ==
        "predicted_seconds lower_bound_seconds roll_back_count "
        "sharded_sequence_count sharded_token_count micro_batch_count "
        "max_rank_tokens dp_imbalance rank_imbalance pipeline_seconds "
        "pipeline_bubble explanation ");
  // Case 7: [1,19] on two ranks of 10 is one micro-batch, both sharded.
  CHECK(plan["summary"]["micro_batch_count"] == 1);
  CHECK(plan["summary"]["max_rank_tokens"] == 10);
  CHECK(plan["blocks"].dump() == R"([{"first_rank":0,"degree":2}])");
  for (const auto& placement : plan["micro_batches"][0]["placements"]) {
    CHECK(placement["degree"] == 2);
    CHECK(placement["first_rank"] == 0);
    CHECK(placement.contains("sequence"));
  }
}

TEST_CASE("skrullctl plan: cuts the list into batches, the last one shorter",
          "[cli]") {
  const Workshop workshop;
  const CliResult result = workshop.Plan(
      "# a comment\n1\n\n{\"length\": 2, \"id\": \"x\"}\n 3 # three\r\n4\n5",
      {"--batch-size", "2", "--step", "10", "--name", "run7", "--policy",
       "POLICY_PACKED_STATIC_CP"});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const auto lines = Lines(result.out);
  REQUIRE(lines.size() == 3);
  for (size_t i = 0; i < lines.size(); ++i) {
    const json plan = json::parse(lines[i]);
    CHECK(plan["step"] == 10 + i);
    CHECK(plan["job"] == "run7");
    CHECK(plan["policy"] == "POLICY_PACKED_STATIC_CP");
    CHECK(plan["micro_batches"][0]["token_count"] == (i == 2 ? 5 : 4 * i + 3));
  }
}

TEST_CASE("skrullctl plan: a refused batch leaves the others planned",
          "[cli]") {
  const Workshop workshop;
  const CliResult result =
      workshop.Plan("5\n21\n7\n0\n8\n2147483648\n-1\n", {"--batch-size", "1"});
  CHECK(result.exit_code == 1);
  const auto lines = Lines(result.out);
  REQUIRE(lines.size() == 7);
  const char* const codes[] = {"",
                               "FAILED_PRECONDITION",
                               "",
                               "INVALID_ARGUMENT",
                               "",
                               "INVALID_ARGUMENT",
                               "INVALID_ARGUMENT"};
  for (size_t i = 0; i < lines.size(); ++i) {
    const json line = json::parse(lines[i]);
    if (codes[i][0] == '\0') {
      CHECK(line["step"] == i);
      continue;
    }
    CHECK(line["batch"] == i);
    CHECK(line["error"]["code"] == codes[i]);
    CHECK_THAT(line["error"]["message"].get<std::string>(),
               Catch::Contains("index 0"));
    CHECK(lines[i].rfind("{\"batch\":" + std::to_string(i) +
                             ",\"error\":{\"code\":\"" + codes[i] +
                             "\",\"message\":\"",
                         0) == 0);
  }
  CHECK_THAT(lines[1], Catch::Contains("21"));
}

TEST_CASE("skrullctl plan: no lengths are one refused batch", "[cli]") {
  const Workshop workshop;
  for (const char* lengths : {"", "# nothing\n\n"}) {
    const CliResult result = workshop.Plan(lengths, {"--batch-size", "4"});
    CHECK(result.exit_code == 1);
    CHECK(json::parse(result.out)["error"]["code"] == "INVALID_ARGUMENT");
  }
}

TEST_CASE("skrullctl plan: what cannot be read exits 2 and says where",
          "[cli]") {
  const Workshop workshop;
  struct Row {
    const char* lengths;
    const char* message;
  };
  const Row rows[] = {
      {"1\nabc\n", "line 2: \"abc\""},
      {"1\n2 3\n", "line 2"},
      {"1.5\n", "line 1"},
      {"99999999999999999999\n", "does not fit in 64 bits"},
      {"\n\n{\"size\": 4}\n", "line 3: the object has no \"length\" key"},
      {"{\"length\": \"4\"}\n", "line 1"},
      {"{\"length\": 4.5}\n", "line 1"},
      {"{\"length\": 18446744073709551615}\n", "line 1"},
      {"{\"length\": 4\n", "not a JSON object"},
  };
  for (const Row& row : rows) {
    const CliResult result = workshop.Plan(row.lengths);
    INFO(row.lengths << result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_THAT(result.err, Catch::Contains(row.message));
  }
}

TEST_CASE("skrullctl plan: usage errors exit 2", "[cli]") {
  const Workshop workshop;
  const std::string job = workshop.path("job.textproto");
  const std::string lengths = workshop.Write("lengths", "1\n");
  const std::string bad_job =
      workshop.Write("bad.textproto", "parallelism { cp_size: 0 }");
  const std::vector<std::vector<std::string>> usages = {
      {},
      {"plan"},
      {"frobnicate"},
      {"plan", "--lengths", lengths},
      {"plan", "--job-spec", job},
      {"plan", "--job-spec", job, "--job", "run7", "--lengths", lengths},
      {"plan", "--job", "run7", "--lengths", lengths},
      {"plan", "--job", "run7", "--lengths", lengths, "--offline"},
      {"plan", "--job-spec", job, "--lengths", lengths, "--offline", "--server",
       "127.0.0.1:1"},
      {"plan", "--job-spec", job, "--lengths", lengths, "--name", "run7",
       "--server", "127.0.0.1:1"},
      {"plan", "--job-spec", job, "--lengths", lengths, "--name", "../run"},
      {"plan", "--job-spec", job, "--lengths", lengths, "--batch-size", "0"},
      {"plan", "--job-spec", job, "--lengths", lengths, "--step", "-1"},
      {"plan", "--job-spec", job, "--lengths", lengths, "--policy", "FAST"},
      {"plan", "--job-spec", job, "--lengths", lengths, "--format", "xml"},
      {"plan", "--job-spec", job, "--lengths", workshop.path("absent")},
      {"plan", "--job-spec", workshop.path("absent"), "--lengths", lengths},
      {"plan", "--job-spec", bad_job, "--lengths", lengths},
      {"plan", "--job-spec", bad_job, "--lengths", lengths, "--server",
       "127.0.0.1:1"},
      {"check", "--job-spec", job, "--lengths", lengths, "--plan", lengths},
      {"lengths", workshop.path("absent")},
      {"completion", "csh"},
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

TEST_CASE("skrullctl plan: the text report names what matters", "[cli]") {
  const Workshop workshop;
  const CliResult result =
      RunCli({"plan", "--job-spec", workshop.path("job.textproto"), "--lengths",
              "-", "--batch-size", "2"},
             "1\n19\n21\n");
  CHECK(result.exit_code == 1);
  for (const char* part :
       {"batch 0, step 0: 2 sequences, 20 tokens, POLICY_OPTIMIZED",
        "predicted", "lower bound", "sharded 2 sequences (100.00 % of tokens)",
        "fullest rank 10 tokens", "batch 1 refused, FAILED_PRECONDITION"}) {
    CHECK_THAT(result.out, Catch::Contains(part));
  }
  CHECK_THAT(result.out, !Catch::Contains("pipeline"));
}

TEST_CASE("skrullctl plan: the text report tells how a pipeline idles",
          "[cli]") {
  const Workshop workshop;
  std::string text = kSmallJob;
  text.replace(text.find("cp_size"), 0, "pp_size: 3 ");
  const std::string job = workshop.Write("staged", text);
  const CliResult result = RunCli({"plan", "--job-spec", job, "--lengths", "-",
                                   "--policy", "POLICY_SKRULL"},
                                  "1\n19\n");
  // One micro-batch: one of three stages is busy at a time.
  CHECK_THAT(result.out, Catch::Contains("stages idle 66.67 %"));
}

TEST_CASE("skrullctl plan: --explain adds lines to the text alone", "[cli]") {
  const Workshop workshop;
  const std::vector<std::string> plan = {
      "plan", "--job-spec", workshop.path("job.textproto"), "--lengths", "-"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), plan.begin(), plan.end());
    return RunCli(more, "1\n19\n").out;
  };
  CHECK_THAT(run({"--explain"}), Catch::Contains("\n  why: "));
  CHECK_THAT(run({}), !Catch::Contains("why: "));
  CHECK(run({"--format", "json", "--explain"}) == run({"--format", "json"}));
}

TEST_CASE("skrullctl plan: tells of chunks, and check accepts them", "[cli]") {
  const Workshop workshop;
  const std::string lengths = "1\n19\n50\n6\n";
  const CliResult text =
      RunCli({"plan", "--job-spec", workshop.path("job.textproto"), "--lengths",
              "-", "--policy", "POLICY_CHUNK_FLOW"},
             lengths);
  INFO(text.err);
  CHECK(text.exit_code == 0);
  CHECK_THAT(text.out,
             Catch::Contains("chunks 5 of at most 20 tokens, 1 sequences "
                             "split, 2 chunks recomputed, 1 retained"));
  const CliResult plans =
      workshop.Plan(lengths, {"--policy", "POLICY_CHUNK_FLOW"});
  REQUIRE(plans.exit_code == 0);
  const json plan = json::parse(plans.out);
  CHECK(plan["micro_batches"].empty());
  CHECK(plan["chunk_plan"]["chunks"].size() == 5);
  CHECK(plan["chunk_plan"]["schedules"][0]["operations"][0]["pass"] ==
        "CHUNK_PASS_FORWARD_DISCARD");
  const CliResult result = workshop.Check(lengths, plans.out);
  CHECK(result.exit_code == 0);
  CHECK(result.out == "batch 0: legal\n");
  json wrong = plan;
  wrong["chunk_plan"]["chunks"][0]["token_count"] = 19;
  CHECK(workshop.Check(lengths, wrong.dump()).exit_code == 1);
}

TEST_CASE("skrullctl check: accepts what plan prints", "[cli]") {
  const Workshop workshop;
  const std::string lengths = "1\n19\n5\n21\n6\n6\n8\n";
  const CliResult plans = workshop.Plan(lengths, {"--batch-size", "3"});
  REQUIRE(plans.exit_code == 1);
  const CliResult result = workshop.Check(lengths, plans.out);
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.out ==
        "batch 0: legal\nbatch 1: rightly refused\nbatch 2: legal\n");
}

TEST_CASE("skrullctl check: reads integers as text as well", "[cli]") {
  const Workshop workshop;
  json plan = json::parse(workshop.Plan("1\n19\n").out);
  plan["micro_batches"][0]["token_count"] = "20";
  const CliResult result = workshop.Check("1\n19\n", plan.dump());
  CHECK(result.out == "batch 0: legal\n");
}

TEST_CASE("skrullctl check: finds each kind of damage", "[cli]") {
  const Workshop workshop;
  const std::string lengths = "2\n4\n6\n19\n";
  const json good = json::parse(workshop.Plan(lengths).out);
  // Each changes one number of one plan; the digest alone would show it, and
  // must be shown also when only the digest is wrong.
  const char* const pointers[] = {"/micro_batches/0/placements/0/sequence",
                                  "/micro_batches/0/placements/0/token_count",
                                  "/micro_batches/0/placements/0/first_rank",
                                  "/micro_batches/0/placements/0/degree",
                                  "/micro_batches/0/token_count",
                                  "/micro_batches/0/predicted_seconds",
                                  "/summary/predicted_seconds",
                                  "/summary/roll_back_count",
                                  "/step",
                                  "/calibration_epoch"};
  for (const char* pointer : pointers) {
    json bad = good;
    json& value = bad[json::json_pointer(pointer)];
    value = value.get<double>() == 0 ? json(1) : json(0);
    const CliResult result = workshop.Check(lengths, bad.dump());
    INFO(pointer << ": " << result.out << result.err);
    CHECK(result.exit_code == 1);
    CHECK_THAT(result.out, Catch::StartsWith("batch 0: ILLEGAL: "));
  }
  json bad = good;
  bad["digest"] = std::string(64, '0');
  const CliResult result = workshop.Check(lengths, bad.dump());
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.out, Catch::Contains("digest"));
}

TEST_CASE("skrullctl check: a plan for other lengths is illegal", "[cli]") {
  const Workshop workshop;
  // The digest is right here, so the checker itself must see it.
  const std::string plan = workshop.Plan("2\n4\n6\n").out;
  for (const char* lengths :
       {"2\n4\n7\n", "2\n4\n", "2\n4\n6\n1\n", "4\n2\n6\n", "2\n4\n21\n"}) {
    const CliResult result = workshop.Check(lengths, plan);
    INFO(lengths << result.out);
    CHECK(result.exit_code == 1);
    CHECK_THAT(result.out, Catch::StartsWith("batch 0: ILLEGAL: "));
  }
}

TEST_CASE("skrullctl check: a refusal must be justified", "[cli]") {
  const Workshop workshop;
  const auto refusal = [](int batch, const char* code) {
    return json({{"batch", batch}, {"error", {{"code", code}}}}).dump();
  };
  CHECK(workshop.Check("21\n", refusal(0, "FAILED_PRECONDITION")).exit_code ==
        0);
  const CliResult could =
      workshop.Check("20\n", refusal(0, "FAILED_PRECONDITION"));
  CHECK(could.exit_code == 1);
  CHECK_THAT(could.out, Catch::Contains("can be planned"));
  CHECK(workshop.Check("21\n", refusal(0, "UNAVAILABLE")).exit_code == 1);
  CHECK(workshop.Check("21\n", refusal(1, "FAILED_PRECONDITION")).exit_code ==
        1);
  CHECK(workshop.Check("0\n", refusal(0, "INVALID_ARGUMENT")).exit_code == 0);
}

TEST_CASE("skrullctl check: plans and lengths must match in number", "[cli]") {
  const Workshop workshop;
  const std::string lengths = "1\n2\n3\n4\n5\n";
  const std::string plans = workshop.Plan(lengths, {"--batch-size", "2"}).out;
  CHECK(workshop.Check(lengths, plans).exit_code == 0);
  CHECK(workshop.Check(lengths, plans, {"--batch-size", "2"}).exit_code == 0);
  CHECK(workshop.Check(lengths, plans, {"--batch-size", "3"}).exit_code == 2);
  const std::string two = Lines(plans)[0] + "\n" + Lines(plans)[1] + "\n";
  const CliResult result = workshop.Check(lengths, two);
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.err, Catch::Contains("--batch-size"));
}

TEST_CASE("skrullctl check: an unreadable plan exits 2 with its line",
          "[cli]") {
  const Workshop workshop;
  const std::string good = workshop.Plan("1\n").out;
  for (const char* bad :
       {"{", "[]", "plan", "{\"micro_batches\": 3}", "{\"no_such\": 1}",
        "{\"error\": {}}", "{\"batch\": 0, \"error\": {\"code\": 5}}"}) {
    const CliResult result =
        workshop.Check("1\n1\n", good + bad, {"--batch-size", "1"});
    INFO(bad << ": " << result.err);
    CHECK(result.exit_code == 2);
    CHECK_THAT(result.err, Catch::Contains("line 2"));
  }
  CHECK(workshop.Check("1\n", "").exit_code == 2);
}

TEST_CASE("skrullctl: all lists are planned and found legal", "[cli][lists]") {
  const TempDir directory;
  const std::string plans = directory.path() / "plans";
  for (const std::string& list : testing::AllLengthsFiles()) {
    for (const char* job : {"qwen2.5-0.5b", "qwen2.5-7b"}) {
      INFO(job << " " << list);
      const CliResult planned =
          RunCli({"plan", "--job-spec", ExampleJob(job), "--lengths", list,
                  "--batch-size", "256", "--format", "json"});
      CHECK(planned.exit_code <= 1);
      WriteFile(plans, planned.out);
      const CliResult checked =
          RunCli({"check", "--job-spec", ExampleJob(job), "--lengths", list,
                  "--plan", plans, "--batch-size", "256"});
      INFO(checked.err);
      REQUIRE(checked.exit_code == 0);
      CHECK(Lines(checked.out).size() == Lines(planned.out).size());
    }
  }
}

}  // namespace
}  // namespace skrull
