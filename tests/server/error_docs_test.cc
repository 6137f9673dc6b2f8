// docs/errors.md against the code it describes.
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>

#include "absl/status/status.h"
#include "skrull/planner/error.h"

namespace skrull {
namespace {

std::string ErrorsPage() {
  std::ifstream file(SKRULL_SOURCE_DIR "/docs/errors.md");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST_CASE("docs/errors.md: lists every reason once, with its code",
          "[server][docs]") {
  const std::string page = ErrorsPage();
  REQUIRE(!page.empty());
  const std::regex row("\\| `([A-Z_]+)` \\| `([A-Z_]+)` \\|");
  std::map<std::string, std::string> listed;
  for (std::sregex_iterator it(page.begin(), page.end(), row), end; it != end;
       ++it) {
    CAPTURE((*it)[1].str());
    CHECK(listed.emplace((*it)[1], (*it)[2]).second);
  }
  size_t known = 0;
  for (ErrorReason reason : AllErrorReasons()) {
    if (reason == ErrorReason::kUnspecified) continue;
    ++known;
    const std::string name = ErrorReasonName(reason);
    CAPTURE(name);
    ErrorDetail detail;
    detail.reason = reason;
    CHECK(listed[name] ==
          absl::StatusCodeToString(MakeError(detail, "text").code()));
  }
  CHECK(listed.size() == known);
}

}  // namespace
}  // namespace skrull
