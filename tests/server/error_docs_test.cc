// docs/errors.md against the code it describes.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "skrull/planner/error.h"

namespace skrull {
namespace {

// What the table's rows "| `REASON` | `CODE` | ..." say, in order.
std::vector<std::pair<std::string, std::string>> ListedReasons() {
  std::ifstream file(SKRULL_SOURCE_DIR "/docs/errors.md");
  std::vector<std::pair<std::string, std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> ticks = absl::StrSplit(line, '`');
    if (ticks.size() >= 5 && ticks[0] == "| " && ticks[2] == " | " &&
        ticks[4].rfind(" | ", 0) == 0) {
      rows.emplace_back(ticks[1], ticks[3]);
    }
  }
  return rows;
}

TEST_CASE("docs/errors.md: lists every reason once, with its code",
          "[server][docs]") {
  std::map<std::string, std::string> listed;
  for (const auto& [reason, code] : ListedReasons()) {
    CAPTURE(reason);
    CHECK(listed.emplace(reason, code).second);
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
