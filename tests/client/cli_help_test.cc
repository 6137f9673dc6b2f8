// Help, docs/cli.md and completion scripts all come from one tree of commands.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <sstream>

#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using testing::CliResult;
using testing::Lines;
using testing::RunCli;
using testing::RunProgram;

using Words = std::vector<std::string>;

const std::vector<Words> kCommands = {{},
                                      {"plan"},
                                      {"compare"},
                                      {"simulate"},
                                      {"check"},
                                      {"trace"},
                                      {"report"},
                                      {"lengths"},
                                      {"job"},
                                      {"job", "create"},
                                      {"job", "get"},
                                      {"job", "list"},
                                      {"job", "calibrations"},
                                      {"job", "delete"},
                                      {"top"},
                                      {"debug-bundle"},
                                      {"health"},
                                      {"token"},
                                      {"token", "new"},
                                      {"completion"},
                                      {"version"}};

std::string Joined(const Words& words) {
  std::string text = "skrullctl";
  for (const std::string& word : words) text += " " + word;
  return text;
}

Words Split(const std::string& line) {
  std::istringstream stream(line);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string HelpOf(Words command) {
  command.push_back("--help");
  const CliResult result = RunCli(command);
  REQUIRE(result.exit_code == 0);
  REQUIRE(result.err.empty());
  return result.out;
}

// The line after "Example:" as words, without the program's name.
Words ExampleOf(const std::string& help) {
  const std::vector<std::string> lines = Lines(help);
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    if (lines[i] != "Example:") continue;
    Words words = Split(lines[i + 1]);
    REQUIRE(words.front() == "skrullctl");
    words.erase(words.begin());
    return words;
  }
  return {};
}

TEST_CASE("docs/cli.md is what --help prints", "[cli][docs]") {
  std::string page =
      "# skrullctl\n\n"
      "What `skrullctl COMMAND --help` prints; a test compares this page with "
      "it, and writes\nit anew when `SKRULL_UPDATE_DOCS=1` is set.\n";
  for (const Words& command : kCommands) {
    page +=
        "\n## " + Joined(command) + "\n\n```text\n" + HelpOf(command) + "```\n";
  }
  const auto path = testing::SourceDir() / "docs/cli.md";
  if (std::getenv("SKRULL_UPDATE_DOCS") != nullptr) {
    testing::WriteFile(path, page);
  }
  CHECK(testing::ReadFile(path) == page);
}

TEST_CASE("skrullctl: every command is in the list above and has an example",
          "[cli][docs]") {
  size_t named = 0;
  for (const Words& command : kCommands) {
    const std::string help = HelpOf(command);
    if (command.empty() || command == Words{"job"} ||
        command == Words{"token"}) {
      bool listing = false;
      for (const std::string& line : Lines(help)) {
        if (line == "Subcommands:") {
          listing = true;
        } else if (line.empty()) {
          listing = false;
        } else if (listing && line.size() > 2 && line[2] != ' ') {
          ++named;
        }
      }
    }
    if (!command.empty()) {
      INFO(help);
      CHECK_FALSE(ExampleOf(help).empty());
    }
  }
  CHECK(named == kCommands.size() - 1);
}

TEST_CASE("skrullctl: the examples of --help run", "[cli][docs]") {
  // In an own folder, with the names that the examples use; `deploy` and `docs`
  // are those of the source tree.
  const testing::TempDir directory;
  testing::Daemon daemon;
  const auto run = [&](Words words) {
    for (std::string& word : words) {
      if (word == "lengths.txt" || word == "plans.jsonl" ||
          word == "trace.json" || word == "report.html") {
        word = directory.path() / word;
      }
    }
    const CliResult result =
        RunCli(words, "", {{"SKRULL_SERVER", daemon.address()}});
    INFO(Joined(words) << "\n" << result.err);
    CHECK(result.exit_code == 0);
    return result.out;
  };
  const auto example = [](const Words& command) {
    return ExampleOf(HelpOf(command));
  };
  run(example({"lengths"}));
  const std::string text = run(example({"plan"}));
  CHECK_THAT(text, Catch::StartsWith("batch 0"));
  CHECK_THAT(run(example({"compare"})), Catch::Contains("POLICY_SKRULL"));
  CHECK_THAT(run(example({"simulate"})), Catch::Contains("row 3: "));
  Words plan = example({"plan"});
  plan.insert(plan.end(), {"--format", "json"});
  testing::WriteFile(directory.path() / "plans.jsonl", run(plan));
  run(example({"check"}));
  run(example({"trace"}));
  run(example({"report"}));
  CHECK_THAT(run(example({"job", "create"})), Catch::Contains("run7"));
  CHECK_THAT(run(example({"job", "get"})), Catch::Contains("hidden_size"));
  CHECK_THAT(run(example({"job"})), Catch::Contains("run7"));
  CHECK_THAT(run(example({"job", "list"})), Catch::Contains("run7"));
  CHECK_THAT(run(example({"job", "calibrations"})),
             Catch::Contains("REGISTERED"));
  run(example({"job", "delete"}));
  run(example({"completion"}));
  CHECK_THAT(run(example({"version"})), Catch::StartsWith("skrullctl "));
}

TEST_CASE("skrullctl completion: every shell accepts its script",
          "[cli][completion]") {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const CliResult script = RunCli({"completion", shell});
    REQUIRE(script.exit_code == 0);
    for (const char* word : {"create", "lengths", "POLICY_PACKED_STATIC_CP"}) {
      CHECK_THAT(script.out, Catch::Contains(word));
    }
    const CliResult found =
        RunProgram({"/bin/sh", "-c", std::string("command -v ") + shell});
    if (found.exit_code != 0) {
      WARN(shell << " is not installed: its script is not tried");
      continue;
    }
    const CliResult check = RunProgram({shell, "-n", "/dev/stdin"}, script.out);
    INFO(shell << ": " << check.err);
    CHECK(check.exit_code == 0);
  }
}

// What bash offers after `line`.
Words BashOffers(const std::string& line) {
  const std::string test = "compopt() { :; }\n" +
                           RunCli({"completion", "bash"}).out + "COMP_WORDS=(" +
                           line +
                           ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                           "_skrullctl\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  const CliResult result = RunProgram({"bash", "-s"}, test);
  INFO(result.err);
  CHECK(result.exit_code == 0);
  return Lines(result.out);
}

TEST_CASE("skrullctl completion: bash offers what may follow",
          "[cli][completion]") {
  CHECK(BashOffers("skrullctl job cr") == Words{"create"});
  CHECK(BashOffers("skrullctl che") == Words{"check"});
  CHECK(BashOffers("skrullctl plan --form") == Words{"--format"});
  CHECK(BashOffers("skrullctl plan --format ''") == Words{"text", "json"});
  CHECK(BashOffers("skrullctl plan --policy POLICY_S") ==
        Words{"POLICY_SKRULL", "POLICY_STATIC_CP", "POLICY_SORTED"});
  CHECK(BashOffers("skrullctl plan --lengths CMakeL") ==
        Words{"CMakeLists.txt"});
  CHECK(BashOffers("skrullctl lengths CMakeL") == Words{"CMakeLists.txt"});
  CHECK(BashOffers("skrullctl simulate --scope ''") ==
        Words{"GROUP", "SUBGROUP", "POOL"});
  CHECK(BashOffers("skrullctl compare --format ''") ==
        Words{"text", "json", "csv"});
  CHECK(BashOffers("skrullctl completion z") == Words{"zsh"});
  CHECK(BashOffers("skrullctl job list --gen") == Words{""});
}

}  // namespace
}  // namespace skrull
