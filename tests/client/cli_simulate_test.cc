// skrullctl simulate, in process.
#include <catch2/catch.hpp>

#include "skrull/tests/client/cli_rows.h"
#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using nlohmann::ordered_json;
using testing::CliResult;
using testing::kWholeSecondsJob;
using testing::ParseRows;
using testing::RunCli;

struct Workshop {
  Workshop() {
    testing::WriteFile(path("job"), std::string(kWholeSecondsJob) +
                                        "policy: POLICY_PACKED_STATIC_CP\n");
  }

  std::string path(const std::string& name) const {
    return directory.path() / name;
  }
  CliResult Simulate(const std::string& lengths,
                     const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"simulate", "--job-spec", path("job"),
                                          "--lengths", "-"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCli(arguments, lengths);
  }

  testing::TempDir directory;
};

// 28, 1900, 640 and 640 seconds of one rank.
constexpr char kLengths[] = "1\n19\n10\n10\n";

TEST_CASE("skrullctl simulate: the table, to the digit", "[cli][simulate]") {
  const Workshop workshop;
  const CliResult result = workshop.Simulate(
      kLengths, {"--batch-size", "2,1,4", "--bucket", "10,20"});
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  // 1604 seconds of both ranks, and 100 a micro-batch.
  const std::string expected =
      "job " + workshop.path("job") +
      R"(: 2 ranks of 10 tokens, POLICY_PACKED_STATIC_CP
lengths -: 4 sequences

row 0: batch size 2, the job as it is
row 1: batch size 2, memory.bucket_size_tokens 20
row 2: batch size 1, the job as it is
row 3: batch size 1, memory.bucket_size_tokens 20
row 4: batch size 4, the job as it is
row 5: batch size 4, memory.bucket_size_tokens 20

HEADER
0        2/2  1804.000 s        0.01109    1.00 x  0.00 %  0.00 %   100.00 % T
1        2/2  1804.000 s        0.01109    1.00 x  0.00 %  0.00 %    50.00 % T
2        4/4  2004.000 s        0.00998    0.90 x  0.00 %  0.00 %   100.00 % T
3        4/4  2004.000 s        0.00998    0.90 x  0.00 %  0.00 %    50.00 % T
4        1/1  1804.000 s        0.01109    1.00 x  0.00 %  0.00 %   100.00 % T
5        1/1  1704.000 s        0.01174    1.06 x  0.00 %  0.00 %   100.00 % T

)";
  std::string shown = testing::MaskTimes(result.out);
  const size_t header = shown.find("row  planned");
  REQUIRE(header != std::string::npos);
  shown.replace(header, shown.find('\n', header) - header, "HEADER");
  CHECK(shown.substr(0, expected.size()) == expected);
  for (const std::string& line : testing::Lines(result.out)) {
    CHECK(line.size() <= 100);
  }
}

TEST_CASE("skrullctl simulate: each row is what compare says of that job",
          "[cli][simulate]") {
  const Workshop workshop;
  const std::string job = R"(
    model { hidden_size: 1 layer_count: 1 attention_head_count: 1 }
    cost { seconds_per_flop: 1 pass_multiplier: 1 seconds_per_micro_batch: 100 }
  )";
  testing::WriteFile(workshop.path("base"),
                     job +
                         "policy: POLICY_SKRULL "
                         "parallelism { dp_size: 2 cp_size: 4 }"
                         "memory { bucket_size_tokens: 50 }");
  std::string list;
  for (int i = 0; i < 45; ++i) {
    list += std::to_string(1 + (i * 7919) % 190) + "\n";
  }
  testing::WriteFile(workshop.path("list"), list);
  const CliResult result =
      RunCli({"simulate", "--job-spec", workshop.path("base"), "--lengths",
              workshop.path("list"), "--batch-size", "10,20", "--bucket",
              "40,80", "--cp", "2,8", "--scope", "SUBGROUP,POOL", "--policy",
              "POLICY_OPTIMIZED", "--format", "json"});
  INFO(result.err);
  CHECK(result.exit_code == 1);  // 190 tokens on 2 ranks of 40, for one
  const auto rows = ParseRows(result.out);
  REQUIRE(rows.size() == 1 + 16);
  int refusals = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const ordered_json& row = rows[i];
    INFO(row.dump());
    CHECK(row["row"] == i);
    // The job the row is about, by its position.
    const size_t at = i - 1;
    const int batch_size = i == 0 || at / 8 == 0 ? 10 : 20;
    const int bucket = i == 0 ? 50 : at / 4 % 2 == 0 ? 40 : 80;
    const int cp = i == 0 ? 4 : at / 2 % 2 == 0 ? 2 : 8;
    const std::string scope = i == 0        ? "BLOCK_SCOPE_GROUP"
                              : at % 2 == 0 ? "BLOCK_SCOPE_SUBGROUP"
                                            : "BLOCK_SCOPE_POOL";
    const std::string policy = i == 0 ? "POLICY_SKRULL" : "POLICY_OPTIMIZED";
    CHECK(row["changes"].size() == (i == 0 ? 0 : 5));
    testing::WriteFile(
        workshop.path("changed"),
        job + "parallelism { dp_size: " + std::to_string(8 / cp) +
            " cp_size: " + std::to_string(cp) + " block_scope: " + scope +
            "} memory { bucket_size_tokens: " + std::to_string(bucket) + "}");
    const auto compared =
        ParseRows(RunCli({"compare", "--job-spec", workshop.path("changed"),
                          "--lengths", workshop.path("list"), "--batch-size",
                          std::to_string(batch_size), "--policy", policy,
                          "--format", "json"})
                      .out);
    REQUIRE(compared.size() == 1);
    const ordered_json& same = compared[0];
    CHECK(row["batch_size"] == batch_size);
    CHECK(row["steps"] == same["batches"]);
    CHECK(row["planned_steps"] == same["planned_batches"]);
    for (const char* key :
         {"policy", "ranks", "planned_tokens", "mean_gap", "worst_gap",
          "max_rank_tokens", "bucket_size_tokens", "peak_load",
          "sharded_token_share", "mean_micro_batches", "refusals"}) {
      INFO(key);
      CHECK(row[key] == same[key]);
    }
    refusals += row["refused_steps"].get<int>();
    if (row["planned_steps"] == 0) {
      CHECK(row["epoch_seconds"].is_null());
      CHECK(row["speed_up"].is_null());
      continue;
    }
    const double seconds = row["epoch_seconds"];
    const double throughput = row["tokens_per_second_per_rank"];
    CHECK(seconds / row["planned_steps"].get<double>() ==
          Approx(same["mean_predicted_seconds"].get<double>()));
    CHECK(throughput ==
          Approx(row["planned_tokens"].get<double>() / (8 * seconds)));
    CHECK(row["speed_up"].get<double>() ==
          Approx(throughput /
                 rows[0]["tokens_per_second_per_rank"].get<double>()));
  }
  CHECK(refusals > 0);
}

TEST_CASE("skrullctl simulate: csv reads back as json", "[cli][simulate]") {
  const Workshop workshop;
  const std::vector<std::string> sweep = {"--batch-size", "2",  "--cp",    "1",
                                          "--bucket",     "15", "--format"};
  const auto run = [&](const std::string& format) {
    std::vector<std::string> more = sweep;
    more.push_back(format);
    const CliResult result = workshop.Simulate(kLengths, more);
    CHECK(result.exit_code == 1);  // 19 tokens on a rank of 15
    return result.out;
  };
  const auto rows = ParseRows(run("json"));
  const auto records = testing::ParseCsv(run("csv"));
  REQUIRE(rows.size() == 2);
  REQUIRE(records.size() == 3);
  for (size_t i = 0; i < rows.size(); ++i) {
    REQUIRE(records[1 + i].size() == rows[i].size());
    size_t column = 0;
    for (const auto& [key, value] : rows[i].items()) {
      INFO(key);
      CHECK(records[0][column] == key);
      const std::string& field = records[1 + i][column++];
      if (key.ends_with("planning_seconds")) continue;
      if (value.is_null()) {
        CHECK(field.empty());
        continue;
      }
      if (key == "changes") {
        CHECK(field == (i == 0
                            ? ""
                            : "memory.bucket_size_tokens=15;"
                              "parallelism.cp_size=1;parallelism.dp_size=2"));
      } else if (key == "refusals") {
        CHECK(field == (i == 0 ? "" : "SEQUENCE_TOO_LONG=1"));
      } else {
        CHECK(field ==
              (value.is_string() ? value.get<std::string>() : value.dump()));
      }
    }
  }
}

TEST_CASE("skrullctl simulate: refused batches are named, the rest goes on",
          "[cli][simulate]") {
  const Workshop workshop;
  const CliResult result = workshop.Simulate("21\n1\n21\n21\n0\n21\n21\n21\n",
                                             {"--batch-size", "1"});
  CHECK(result.exit_code == 1);
  for (const char* part :
       {"\n0        1/8  114.000 s ",
        "refused in row 0:\n"
        "  SEQUENCE_TOO_LONG: 6 batches (0, 2, 3, 5, 6, ...)\n"
        "    lengths: 1 sequence is longer than the 20 tokens",
        "  FIELD_INVALID: 1 batch (4)\n    lengths: not in"}) {
    CHECK_THAT(result.out, Catch::Contains(part));
  }
  const CliResult none = workshop.Simulate("21\n", {});
  CHECK(none.exit_code == 1);
  CHECK_THAT(none.out, Catch::Contains("\n0        0/1      -              -"));
}

TEST_CASE("skrullctl simulate: usage errors exit 2", "[cli][simulate]") {
  const Workshop workshop;
  const std::vector<std::vector<std::string>> usages = {
      {"--batch-size", "0"},   {"--batch-size", "2,x"},
      {"--bucket", "0"},       {"--cp", "3"},
      {"--cp", "0"},           {"--scope", "WORLD"},
      {"--policy", "FAST"},    {"--format", "xml"},
      {"--progress", "often"}, {"--batch-size", "2", "4"},
      {"--job-spec", "-"},     {"--offline", "--server", "127.0.0.1:1"},
  };
  for (const std::vector<std::string>& usage : usages) {
    const CliResult result = workshop.Simulate(kLengths, usage);
    INFO(usage[0] << " " << usage[1] << "\n" << result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_FALSE(result.err.empty());
  }
  for (const char* format : {"text", "json", "csv"}) {
    const CliResult result = workshop.Simulate("one\n", {"--format", format});
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_THAT(result.err, Catch::Contains("line 1"));
  }
}

}  // namespace
}  // namespace skrull
