#include "skrull/server/log.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <initializer_list>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "skrull/server/log_limiter.h"

namespace skrull {
namespace {

using std::chrono::milliseconds;

const std::chrono::system_clock::time_point kTime(
    std::chrono::microseconds(1'700'000'000'123'456));

std::string Line(LogFormat format, LogLevel level,
                 const std::vector<LogField>& fields) {
  return FormatLogLine(format, kTime, level, "event", fields);
}

TEST_CASE("Log: a line of text cannot be forged by what it quotes",
          "[server][log]") {
  CHECK(Line(LogFormat::kText, LogLevel::kInfo,
             {{"plain", "a-1"}, {"count", 3}, {"ratio", 0.5}, {"empty", ""}}) ==
        "2023-11-14T22:13:20.123456Z info event plain=a-1 count=3 "
        "ratio=0.500000 empty=\"\"\n");
  CHECK(Line(LogFormat::kText, LogLevel::kError,
             {{"text", "a b\" c=d\n2023 error x"}}) ==
        "2023-11-14T22:13:20.123456Z error event "
        "text=\"a b\\\" c=d\\n2023 error x\"\n");
}

TEST_CASE("Log: a line of JSON says what was logged", "[server][log]") {
  CHECK(
      Line(LogFormat::kJson, LogLevel::kWarning,
           {{"plain", "a-1"}, {"count", -3}, {"ratio", 0.5}, {"text", "5"}}) ==
      "{\"time\":\"2023-11-14T22:13:20.123456Z\",\"level\":\"warning\","
      "\"event\":\"event\",\"plain\":\"a-1\",\"count\":-3,"
      "\"ratio\":0.500000,\"text\":\"5\"}\n");
}

// Read back by a parser, as a log collector does.
TEST_CASE("Log: JSON keeps hostile strings in their field", "[server][log]") {
  const std::string hostile = GENERATE(
      std::string("\"},{\"level\":\"error\""), std::string("a\nb\r\tc\\d/e"),
      std::string("zero\0byte", 9), std::string("\x01\x1f\x7f"),
      std::string("Zürich 東京 \xf0\x9f\x9a\x80"), std::string(""));
  const std::string line =
      Line(LogFormat::kJson, LogLevel::kInfo, {{"text", hostile}});
  CHECK(std::count(line.begin(), line.end(), '\n') == 1);
  CHECK(std::all_of(line.begin(), line.end() - 1,
                    [](char c) { return c >= ' ' && c <= '~'; }));
  const auto object = nlohmann::json::parse(line);
  CHECK(object.size() == 4);
  CHECK(object["text"] == hostile);
}

TEST_CASE("Log: what is not UTF-8 is replaced", "[server][log]") {
  const auto object =
      nlohmann::json::parse(Line(LogFormat::kJson, LogLevel::kInfo,
                                 {{"text", "a\xff\xc3(\xed\xa0\x80z"}}));
  const auto text = object["text"].get<std::string>();
  CHECK(text.starts_with("a\xef\xbf\xbd"));
  CHECK(text.ends_with("z"));
}

TEST_CASE("Log: a value of any length makes a line of bounded length",
          "[server][log]") {
  const std::vector<LogField> fields = {{"text", std::string(1 << 20, '\n')},
                                        {"after", 1}};
  const std::string text = Line(LogFormat::kText, LogLevel::kInfo, fields);
  CHECK(text.size() < 9000);
  CHECK(text.ends_with(" ...\" after=1\n"));
  const std::string json = Line(LogFormat::kJson, LogLevel::kInfo, fields);
  CHECK(json.size() < 20000);
  CHECK(nlohmann::json::parse(json)["after"] == 1);
}

TEST_CASE("LogLimiter: passes so many a second, and counts the rest",
          "[server][log]") {
  LogLimiter limiter(2);
  LogLimiter::Time now{};
  CHECK(limiter.Pass(now) == 0);
  CHECK(limiter.Pass(now + milliseconds(500)) == 0);
  CHECK_FALSE(limiter.Pass(now + milliseconds(600)));
  CHECK_FALSE(limiter.Pass(now + milliseconds(999)));
  CHECK(limiter.Pass(now + milliseconds(1000)) == 2);
  CHECK(limiter.Pass(now + milliseconds(1000)) == 0);
  CHECK_FALSE(limiter.Pass(now + milliseconds(1999)));
  CHECK(limiter.Pass(now + milliseconds(60000)) == 1);
}

}  // namespace
}  // namespace skrull
