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
  SECTION("as processes, too") {
    const auto [code, output] = run({"--processes"});
    INFO(output);
    CHECK(code == 0);
    CHECK_THAT(output, Catch::Contains("4 ranks (dp 2, cp 2) as processes") &&
                           Catch::Contains("POLICY_OPTIMIZED"));
    // The same as threads, to the last digit.
    const auto losses = [](const std::string& text) {
      std::string found;
      for (size_t at = text.find("POLICY_"); at != std::string::npos;
           at = text.find("POLICY_", at + 1)) {
        // Policy, first loss, last loss.
        size_t end = at;
        for (int i = 0; i < 3; ++i) end = text.find('|', end + 1);
        found += text.substr(at, end - at);
      }
      return found;
    };
    CHECK(losses(output) == losses(run({}).second));
    CHECK(losses(output).size() > 60);
  }
  SECTION("a batch that no plan fits ends all processes") {
    const auto [code, output] = run({"--processes", "--bucket", "3"});
    INFO(output);
    CHECK(code == 1);
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
