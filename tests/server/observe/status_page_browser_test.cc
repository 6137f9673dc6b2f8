// The status page as a browser shows it, with hostile texts in every field.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "skrull/server/metrics_endpoint.h"
#include "skrull/tests/server/observe/example_status.h"
#include "skrull/tests/support/daemon.h"

namespace skrull::testing {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

// Opens http://ADDRESS/ in a headless Chromium; everything it wrote, its
// console included.
std::string Browse(const std::string& address,
                   const std::vector<std::string>& flags) {
  const TempDir home;
  std::vector<std::string> argv = {SKRULL_CHROMIUM,
                                   "--headless=new",
                                   "--no-sandbox",
                                   "--disable-gpu",
                                   "--disable-dev-shm-usage",
                                   "--hide-scrollbars",
                                   "--enable-logging=stderr",
                                   "--v=0",
                                   "--no-proxy-server",
                                   "--virtual-time-budget=2000",
                                   "--user-data-dir=" + home.path().string()};
  argv.insert(argv.end(), flags.begin(), flags.end());
  argv.push_back("http://" + address + "/");
  Process browser(argv);
  const int exit_code = browser.Wait();
  const std::string output = browser.Output();
  INFO(output);
  REQUIRE(exit_code == 0);
  return output;
}

std::unique_ptr<MetricsEndpoint> Serve(const std::string& text) {
  MetricsEndpoint::Sources sources;
  sources.state = [] { return ServingState::kServing; };
  sources.status = [text] { return ExampleStatus(text); };
  return MetricsEndpoint::Create("127.0.0.1:0", sources).value();
}

TEST_CASE("Status page in Chromium: hostile texts are only shown",
          "[server][status][browser]") {
  const auto endpoint = Serve(kHostileText);
  const std::string output = Browse(endpoint->address(), {"--dump-dom"});
  INFO(output);
  // Complaints about scripts, images or styles that the policy forbids, and
  // what a script that ran nevertheless would have done.
  CHECK_THAT(output, !Contains(":CONSOLE"));
  CHECK_THAT(output, Contains("<title>skrulld</title>"));
  CHECK_THAT(output, !Contains("<script") && !Contains("<img"));
  CHECK_THAT(output, Contains("&lt;script&gt;document.title='owned'"));
}

// SKRULL_SCREENSHOTS=DIR keeps the pictures, for people to look at.
TEST_CASE("Status page in Chromium: wide and narrow, light and dark",
          "[server][status][browser]") {
  const TempDir scratch;
  const char* const kept = std::getenv("SKRULL_SCREENSHOTS");
  const fs::path directory = kept != nullptr ? fs::path(kept) : scratch.path();
  const auto endpoint = Serve("llama-8b-long.7");
  struct Row {
    std::string name;
    std::string size;
    std::string scheme;  // of blink: 0 = dark, 1 = light
  };
  const std::vector<Row> rows = {{"wide-light", "1280,1000", "1"},
                                 {"wide-dark", "1280,1000", "0"},
                                 {"narrow-light", "390,1600", "1"},
                                 {"narrow-dark", "390,1600", "0"}};
  for (const Row& row : rows) {
    const fs::path picture = directory / (row.name + ".png");
    const std::string output =
        Browse(endpoint->address(),
               {"--screenshot=" + picture.string(), "--window-size=" + row.size,
                "--blink-settings=preferredColorScheme=" + row.scheme});
    INFO(output);
    CHECK_THAT(output, !Contains(":CONSOLE"));
    // An empty page of that size compresses to a few KB.
    REQUIRE(fs::exists(picture));
    CHECK(fs::file_size(picture) > 20'000);
  }
}

}  // namespace
}  // namespace skrull::testing
