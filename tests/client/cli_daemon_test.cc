// skrullctl with a real daemon.
#include <signal.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "skrull/client/local_planner.h"
#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using testing::CliResult;
using testing::Daemon;
using testing::ExampleJob;
using testing::Lines;
using testing::RunCli;

TEST_CASE("skrullctl plan: daemon and --offline print the same bytes",
          "[cli][daemon][lists]") {
  Daemon daemon;
  for (const std::string& list : testing::AllLengthsFiles()) {
    for (const char* job : {"qwen2.5-0.5b", "qwen2.5-7b-chatqa2"}) {
      INFO(job << " " << list);
      const std::vector<std::string> plan = {
          "plan", "--job-spec", ExampleJob(job), "--lengths",    list, "--step",
          "5",    "--format",   "json",          "--batch-size", "256"};
      const auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), plan.begin(), plan.end());
        return more;
      };
      const CliResult offline = RunCli(with({"--offline"}));
      const CliResult server = RunCli(with({"--server", daemon.address()}));
      INFO(server.err);
      CHECK(offline.exit_code <= 1);
      CHECK(server.exit_code == offline.exit_code);
      REQUIRE(server.out == offline.out);
    }
  }
  CHECK(
      RunCli({"job", "list", "--format", "json", "--server", daemon.address()})
          .out.empty());
}

TEST_CASE("skrullctl plan: $SKRULL_SERVER is asked unless --offline",
          "[cli][daemon]") {
  const std::vector<std::string> plan = {
      "plan",     "--job-spec", ExampleJob("qwen2.5-0.5b"), "--lengths", "-",
      "--format", "json"};
  const std::map<std::string, std::string> dead = {
      {"SKRULL_SERVER", "127.0.0.1:1"}};
  std::vector<std::string> brief = plan;
  brief.insert(brief.end(), {"--timeout", "1"});
  const CliResult asked = RunCli(brief, "1\n", dead);
  CHECK(asked.exit_code == 1);
  CHECK(nlohmann::json::parse(asked.out)["error"]["code"] == "UNAVAILABLE");
  std::vector<std::string> offline = plan;
  offline.push_back("--offline");
  CHECK(RunCli(offline, "1\n", dead).exit_code == 0);

  Daemon daemon;
  const CliResult alive =
      RunCli(plan, "1\n", {{"SKRULL_SERVER", daemon.address()}});
  CHECK(alive.exit_code == 0);
  CHECK(alive.out == RunCli(plan, "1\n").out);
}

TEST_CASE("skrullctl: a registered job, from creation to deletion",
          "[cli][daemon]") {
  Daemon daemon;
  const std::map<std::string, std::string> server = {
      {"SKRULL_SERVER", daemon.address()}};
  const auto run = [&](const std::vector<std::string>& arguments,
                       const std::string& input = "") {
    return RunCli(arguments, input, server);
  };
  const std::string spec = ExampleJob("qwen2.5-0.5b");
  CHECK(run({"job", "get", "run7"}).exit_code == 1);
  CHECK(run({"job", "create", "run7", "--job-spec", spec}).exit_code == 0);
  CHECK(run({"job", "create", "run7", "--job-spec", spec}).exit_code == 0);
  const CliResult other =
      run({"job", "create", "run7", "--job-spec", ExampleJob("qwen2.5-7b")});
  CHECK(other.exit_code == 1);
  CHECK_THAT(other.err, Catch::Contains("ALREADY_EXISTS"));
  const CliResult bad = run({"job", "create", "run8", "--job-spec", "-"},
                            "parallelism { dp_size: 0 }");
  CHECK(bad.exit_code == 1);
  CHECK_THAT(bad.err, Catch::Contains("INVALID_ARGUMENT"));

  // What get prints makes the same job again.
  const CliResult get = run({"job", "get", "run7"});
  CHECK(run({"job", "create", "run7", "--job-spec", "-"}, get.out).exit_code ==
        0);
  const auto line =
      nlohmann::json::parse(run({"job", "list", "--format", "json"}).out);
  CHECK(line["name"] == "run7");
  CHECK(line["generation"] == 1);

  const std::vector<std::string> plan = {
      "plan", "--job",  "run7", "--lengths", "-",   "--batch-size",
      "2",    "--step", "3",    "--format",  "json"};
  const CliResult first = run(plan, "1\n2\n3\n4\n5\n");
  INFO(first.err);
  CHECK(first.exit_code == 0);
  CHECK(run(plan, "1\n2\n3\n4\n5\n").out == first.out);  // committed
  const auto lines = Lines(first.out);
  REQUIRE(lines.size() == 3);
  CHECK(nlohmann::json::parse(lines[2])["step"] == 5);
  CHECK(nlohmann::json::parse(lines[2])["job"] == "run7");
  // Another batch under a committed step is refused, the others are not.
  const CliResult conflict = run(plan, "1\n2\n3\n9\n5\n");
  CHECK(conflict.exit_code == 1);
  CHECK(Lines(conflict.out)[0] == lines[0]);
  CHECK(nlohmann::json::parse(Lines(conflict.out)[1])["error"]["code"] ==
        "FAILED_PRECONDITION");
  CHECK(Lines(conflict.out)[2] == lines[2]);
  // In process, with the job's name, the plans are the same.
  CHECK(RunCli({"plan", "--job-spec", spec, "--name", "run7", "--lengths", "-",
                "--batch-size", "2", "--step", "3", "--format", "json"},
               "1\n2\n3\n4\n5\n")
            .out == first.out);

  CHECK(run({"job", "delete", "run7", "--generation", "2"}).exit_code == 1);
  CHECK(run({"job", "delete", "run7"}).exit_code == 0);
  CHECK(run({"job", "delete", "run7"}).exit_code == 1);
  const CliResult gone = run(plan, "1\n2\n3\n");
  CHECK(gone.exit_code == 1);
  CHECK(Lines(gone.out).size() == 2);
  CHECK(nlohmann::json::parse(Lines(gone.out)[0])["error"]["code"] ==
        "NOT_FOUND");
}

TEST_CASE("skrullctl health: says in one word and by its exit code",
          "[cli][daemon]") {
  Daemon daemon;
  const auto health = [&] {
    return RunCli({"health", "--server", daemon.address(), "--timeout", "0.5"});
  };
  CHECK(health().out == "SERVING\n");
  CHECK(health().exit_code == 0);

  // A process that is stopped accepts connections, and answers nothing.
  REQUIRE(::kill(daemon.pid(), SIGSTOP) == 0);
  const CliResult stuck = health();
  CHECK(stuck.exit_code == 1);
  CHECK(stuck.out.empty());
  CHECK_THAT(stuck.err, Catch::Contains("DEADLINE_EXCEEDED") &&
                            Catch::Contains(daemon.address()));

  daemon.Kill();
  const CliResult gone = health();
  CHECK(gone.exit_code == 1);
  CHECK_THAT(gone.err, Catch::Contains("UNAVAILABLE"));
  CHECK(RunCli({"health", "--timeout", "-1"}).exit_code == 2);
}

TEST_CASE("skrullctl: ignores http_proxy", "[cli][daemon]") {
  Daemon daemon;
  const CliResult result =
      RunCli({"job", "list", "--server", daemon.address()}, "",
             {{"http_proxy", "http://127.0.0.1:1"},
              {"https_proxy", "nonsense"},
              {"grpc_proxy", "http://127.0.0.1:1"},
              {"no_proxy", ""},
              {"no_grpc_proxy", ""}});
  INFO(result.err);
  CHECK(result.exit_code == 0);
}

TEST_CASE("skrullctl: a dead daemon answers every batch, and ends",
          "[cli][daemon]") {
  const CliResult result =
      RunCli({"plan", "--job", "run7", "--lengths", "-", "--batch-size", "1",
              "--format", "json", "--server", "127.0.0.1:1", "--timeout", "1"},
             "1\n2\n3\n");
  CHECK(result.exit_code == 1);
  const auto lines = Lines(result.out);
  REQUIRE(lines.size() == 3);
  for (size_t i = 0; i < lines.size(); ++i) {
    CHECK(nlohmann::json::parse(lines[i])["batch"] == i);
    CHECK(nlohmann::json::parse(lines[i])["error"]["code"] == "UNAVAILABLE");
  }
}

}  // namespace
}  // namespace skrull
