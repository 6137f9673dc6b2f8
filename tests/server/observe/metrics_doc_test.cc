#include "skrull/server/metrics/metrics_doc.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>

namespace skrull {
namespace {

TEST_CASE("Metrics: docs/metrics.md is what the metrics generate",
          "[server][metrics][docs]") {
  std::ifstream file(SKRULL_SOURCE_DIR "/docs/metrics.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  INFO("skrulld --print-metrics-markdown > docs/metrics.md");
  CHECK(page == MetricsMarkdown());
}

}  // namespace
}  // namespace skrull
