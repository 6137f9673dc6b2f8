// skrullctl lengths on made documents.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "skrull/cli/documents.h"
#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

namespace fs = std::filesystem;
using testing::CliResult;
using testing::Lines;
using testing::RunCli;
using testing::TempDir;
using testing::WriteFile;

// What follows the comment on the first line.
std::vector<std::string> Values(const std::string& text) {
  std::vector<std::string> lines = Lines(text);
  REQUIRE_FALSE(lines.empty());
  CHECK(lines[0].front() == '#');
  lines.erase(lines.begin());
  return lines;
}

using Strings = std::vector<std::string>;

TEST_CASE("skrullctl lengths: one length a text file, sorted by path",
          "[cli]") {
  const TempDir directory;
  const fs::path& root = directory.path();
  fs::create_directories(root / "b/deep");
  fs::create_directories(root / ".git/objects");
  fs::create_directories(root / "none");
  WriteFile(root / "b/deep/z.md", std::string(41, 'x'));
  WriteFile(root / "b.txt", "abc");  // less than a token
  WriteFile(root / "a.txt", std::string(4000, 'y'));
  WriteFile(root / "utf8", "\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4");  // 8 bytes
  WriteFile(root / "c.bin", std::string("text\0more", 9));
  WriteFile(root / "empty.txt", "");
  WriteFile(root / ".git/objects/x", std::string(400, 'g'));
  WriteFile(root / ".hidden", std::string(400, 'h'));
  fs::create_symlink(root / "a.txt", root / "link.txt");
  fs::create_directory_symlink(root, root / "b/loop");

  const CliResult result = RunCli({"lengths", root});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  // a.txt, b.txt, b/deep/z.md, utf8.
  CHECK(Values(result.out) == Strings{"1000", "1", "10", "2"});
  CHECK_THAT(result.err, Catch::Contains("skipped 2"));

  const CliResult finer = RunCli({"lengths", root, "--bytes-per-token", "2.5",
                                  "--output", root / "out/lengths"});
  CHECK(finer.exit_code == 2);  // no such folder
  const fs::path out = directory.path() / ".lengths";
  REQUIRE(RunCli({"lengths", root, "--bytes-per-token", "2.5", "--output", out})
              .exit_code == 0);
  CHECK(Values(testing::ReadFile(out)) == Strings{"1600", "1", "16", "3"});
}

TEST_CASE("skrullctl lengths: what it writes is what plan reads", "[cli]") {
  const TempDir directory;
  WriteFile(directory.path() / "a", std::string(8000, 'x'));
  WriteFile(directory.path() / "b", std::string(80, 'x'));
  const CliResult lengths = RunCli({"lengths", directory.path()});
  const CliResult plan =
      RunCli({"plan", "--job-spec", testing::ExampleJob("qwen2.5-0.5b"),
              "--lengths", "-"},
             lengths.out);
  CHECK(plan.exit_code == 0);
  CHECK_THAT(plan.out, Catch::Contains("2 sequences, 2,020 tokens"));
}

TEST_CASE("skrullctl lengths: JSON Lines, by named or usual key", "[cli]") {
  const TempDir directory;
  const std::string file = directory.path() / "data.jsonl";
  WriteFile(file,
            "{\"text\": \"12345678\", \"size\": 7}\n"
            "\n"
            "{\"length\": 5, \"text\": \"ignored\", \"size\": 8}\r\n"
            "{\"text\": \"\", \"size\": 9}\n"
            "{\"text\": \"\\u00e4\\u00e4\\u00e4\\u00e4\", \"size\": 10}\n");
  const CliResult usual = RunCli({"lengths", file});
  INFO(usual.err);
  REQUIRE(usual.exit_code == 0);
  CHECK(Values(usual.out) == Strings{"2", "5", "2"});
  CHECK(Values(RunCli({"lengths", file, "--field", "size"}).out) ==
        Strings{"7", "8", "9", "10"});
}

TEST_CASE("skrullctl lengths: errors name the line", "[cli]") {
  const TempDir directory;
  const std::string file = directory.path() / "data.jsonl";
  struct Row {
    const char* line;
    const char* message;
  };
  const Row rows[] = {{"{\"size\": 1}", "neither \"length\" nor \"text\""},
                      {"{\"length\": 0}", "\"length\" is 0 tokens"},
                      {"{\"length\": 2147483648}", "2147483648 tokens"},
                      {"{\"length\": 1.5}", "number"},
                      {"{\"length\": null}", "null"},
                      {"{\"text\": [1]}", "array"},
                      {"{\"length\": 1", "not a JSON object"},
                      {"7", "not a JSON object"}};
  for (const Row& row : rows) {
    WriteFile(file, std::string("{\"length\": 1}\n") + row.line + "\n");
    const CliResult result = RunCli({"lengths", file});
    INFO(row.line << ": " << result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_THAT(result.err,
               Catch::Contains("line 2") && Catch::Contains(row.message));
  }
  WriteFile(file, "\n");
  CHECK_THAT(RunCli({"lengths", file}).err,
             Catch::Contains("holds no documents"));
  CHECK(RunCli({"lengths", directory.path(), "--field", "x"}).exit_code == 2);
}

TEST_CASE("skrullctl lengths: a seed always shuffles the same way", "[cli]") {
  const TempDir directory;
  const std::string file = directory.path() / "data.jsonl";
  std::string text;
  for (int i = 1; i <= 8; ++i) {
    text += "{\"length\": " + std::to_string(i) + "}\n";
  }
  WriteFile(file, text);
  const auto shuffled = [&](const char* seed) {
    return Values(RunCli({"lengths", file, "--shuffle-seed", seed}).out);
  };
  CHECK(shuffled("1") == shuffled("1"));
  CHECK(shuffled("1") != shuffled("2"));
  Strings sorted = shuffled("1");
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == Strings{"1", "2", "3", "4", "5", "6", "7", "8"});
}

TEST_CASE("Shuffle: follows splitmix64", "[cli]") {
  // The first outputs for seed 0 are 0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4 and
  // 0x06c45d188009454f: modulo 4, 3 and 2 they are 3, 0 and 1. So 4 stays; 1
  // and 3 change places; 2 stays.
  std::vector<int64_t> lengths = {1, 2, 3, 4};
  cli::Shuffle(0, &lengths);
  CHECK(lengths == std::vector<int64_t>{3, 2, 1, 4});
  lengths.clear();
  cli::Shuffle(0, &lengths);
  CHECK(lengths.empty());
}

TEST_CASE("TokensOfBytes: rounds down, to at least one", "[cli]") {
  CHECK(cli::TokensOfBytes(1, 4) == 1);
  CHECK(cli::TokensOfBytes(7, 4) == 1);
  CHECK(cli::TokensOfBytes(8, 4) == 2);
  CHECK(cli::TokensOfBytes(10, 2.5) == 4);
  CHECK(cli::TokensOfBytes(int64_t{1} << 62, 0.001) > int64_t{1} << 31);
}

}  // namespace
}  // namespace skrull
