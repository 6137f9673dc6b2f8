// skrullctl compare with a daemon.
#include <catch2/catch.hpp>

#include "skrull/tests/client/cli_rows.h"
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

}  // namespace
}  // namespace skrull
