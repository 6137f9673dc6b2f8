// The example trainer as a program, planned by a live daemon.
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "skrull/tests/support/daemon.h"

namespace skrull::examples {

using skrull::testing::Daemon;
using skrull::testing::Process;

TEST_CASE("skrull_cpu_trainer: trains under every policy, planned by a daemon",
          "[trainer][daemon]") {
  Daemon daemon;
  const auto run = [&](std::vector<std::string> flags) {
    std::vector<std::string> argv = {SKRULL_CPU_TRAINER_PATH,
                                     "--lengths",
                                     SKRULL_LENGTHS_PATH,
                                     "--server",
                                     daemon.address(),
                                     "--batch-size",
                                     "12",
                                     "--steps",
                                     "2",
                                     "--scale",
                                     "64"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    Process process(argv);
    const int code = process.Wait();
    return std::pair(code, process.Output());
  };
  SECTION("the losses are the same") {
    for (const bool ring : {false, true}) {
      const auto [code, output] =
          run(ring ? std::vector<std::string>{"--ring", "--dp", "3"}
                   : std::vector<std::string>{});
      INFO(output);
      CHECK(code == 0);
      for (const char* policy :
           {"POLICY_STATIC_CP", "POLICY_SKRULL", "POLICY_OPTIMIZED"}) {
        CHECK_THAT(output, Catch::Contains(policy));
      }
    }
  }
  SECTION("a batch that no plan fits ends it, by its reason") {
    const auto [code, output] = run({"--bucket", "3"});
    INFO(output);
    CHECK(code == 1);
    CHECK_THAT(output, Catch::Contains("FAILED_PRECONDITION"));
  }
  SECTION("usage") {
    CHECK(run({"--dp", "0"}).first == 2);
    CHECK(run({"--help"}).first == 0);
  }
}

}  // namespace skrull::examples
