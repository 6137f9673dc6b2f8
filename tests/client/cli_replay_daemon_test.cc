// skrullctl compare and simulate with a daemon.
#include <signal.h>

#include <catch2/catch.hpp>
#include <future>

#include "skrull/tests/client/cli_rows.h"
#include "skrull/tests/client/fake_planner.h"
#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using testing::CliResult;
using testing::Daemon;
using testing::ExampleJob;
using testing::RunCli;
using testing::WithoutPlanningTimes;

TEST_CASE("skrullctl compare: daemon and --offline print the same numbers",
          "[cli][daemon][lists]") {
  Daemon daemon;
  std::vector<std::string> compare = {
      "compare", "--batch-size", "256", "--format", "json", "--batches", "2"};
  for (const char* job : {"qwen2.5-0.5b", "qwen2.5-7b-chatqa2"}) {
    compare.insert(compare.end(), {"--job-spec", ExampleJob(job)});
  }
  for (const std::string& list : testing::AllLengthsFiles()) {
    compare.insert(compare.end(), {"--lengths", list});
  }
  std::vector<std::string> offline = compare;
  offline.push_back("--offline");
  const CliResult here =
      RunCli(offline, "", {{"SKRULL_SERVER", "127.0.0.1:1"}});
  const CliResult there =
      RunCli(compare, "", {{"SKRULL_SERVER", daemon.address()}});
  INFO(there.err);
  CHECK(here.exit_code <= 1);
  CHECK(there.exit_code == here.exit_code);
  const std::string rows = WithoutPlanningTimes(here.out);
  CHECK_FALSE(rows.empty());
  REQUIRE(WithoutPlanningTimes(there.out) == rows);
  // $SKRULL_SERVER is asked: a dead one ends it.
  compare.insert(compare.end(), {"--timeout", "1"});
  const CliResult gone =
      RunCli(compare, "", {{"SKRULL_SERVER", "127.0.0.1:1"}});
  CHECK(gone.exit_code == 1);
  CHECK(gone.out.empty());
  CHECK_THAT(gone.err,
             Catch::Contains("UNAVAILABLE") && Catch::Contains("; 0 of "));
}

TEST_CASE("skrullctl simulate: daemon and --offline print the same numbers",
          "[cli][daemon]") {
  Daemon daemon;
  const std::vector<std::string> simulate = {
      "simulate",
      "--job-spec",
      ExampleJob("qwen2.5-7b-chatqa2"),
      "--lengths",
      testing::SourceDir() / "deploy/examples/lengths/chatqa2.txt",
      "--batch-size",
      "1024",
      "--cp",
      "8,16",
      "--bucket",
      "4096,16384",
      "--scope",
      "GROUP,POOL",
      "--format",
      "json"};
  const CliResult here = RunCli(simulate);
  const CliResult there =
      RunCli(simulate, "", {{"SKRULL_SERVER", daemon.address()}});
  INFO(there.err);
  CHECK(here.exit_code <= 1);
  CHECK(there.exit_code == here.exit_code);
  CHECK(testing::ParseRows(here.out).size() == 9);
  CHECK(WithoutPlanningTimes(there.out) == WithoutPlanningTimes(here.out));
}

TEST_CASE("skrullctl simulate: Ctrl-C prints what is done, and how far it came",
          "[cli][daemon]") {
  // Refuses every batch; at the third sends Ctrl-C before it answers.
  testing::FakePlanner planner;
  std::promise<pid_t> started;
  const std::shared_future<pid_t> pid = started.get_future().share();
  int calls = 0;
  planner.plan_batch = [&](grpc::ServerContext*, const v1::PlanBatchRequest&,
                           v1::PlanBatchResponse*) {
    if (++calls == 3) ::kill(pid.get(), SIGINT);
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "no");
  };
  const testing::TempDir directory;
  const std::string job = directory.path() / "job";
  const std::string list = directory.path() / "list";
  testing::WriteFile(job, testing::kWholeSecondsJob);
  testing::WriteFile(list, "1\n2\n");
  testing::Process process({testing::CliPath(), "simulate", "--job-spec", job,
                            "--lengths", list, "--batch-size", "1", "--bucket",
                            "10,20,30", "--server", planner.address(),
                            "--progress", "always"});
  started.set_value(process.pid());
  CHECK(process.Wait() == 130);
  {
    const std::lock_guard<std::mutex> lock(planner.mutex());
    CHECK(calls == 3);
  }
  const std::string output = process.Output();
  INFO(output);
  CHECK_THAT(output, Catch::Contains("row 0: batch size 1, the job as it is") &&
                         Catch::Contains("FAILED_PRECONDITION: 2 batches") &&
                         !Catch::Contains("row 1"));
  CHECK_THAT(output,
             Catch::EndsWith("skrullctl: interrupted; 3 of 6 batches done\n"));
  // The progress is gone.
  const size_t last = output.rfind("batches planned");
  REQUIRE(last != std::string::npos);
  CHECK(output.compare(last, 19, "batches planned\r\033[K") == 0);
}

}  // namespace
}  // namespace skrull
