#include "skrull/server/log.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace skrull {
namespace {

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDebug:
      return "debug";
  }
  return "?";
}

bool IsPlain(const std::string& value) {
  return !value.empty() &&
         std::all_of(value.begin(), value.end(), [](unsigned char c) {
           return std::isgraph(c) && c != '"' && c != '=' && c != '\\';
         });
}

// RFC 3339.
std::string TimeText(std::chrono::system_clock::time_point time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromChrono(time),
                          absl::UTCTimeZone());
}

// At most this much of a value is written.
constexpr size_t kMaxValueBytes = 2000;

std::string Cut(const std::string& value) {
  if (value.size() <= kMaxValueBytes) return value;
  return value.substr(0, kMaxValueBytes) + " ...";
}

std::string TextLine(const std::string& time, LogLevel level, const char* event,
                     std::span<const LogField> fields) {
  std::string line = absl::StrCat(time, " ", LevelName(level), " ", event);
  for (const LogField& field : fields) {
    absl::StrAppend(&line, " ", field.key, "=");
    const std::string value = Cut(field.value);
    if (IsPlain(value)) {
      line += value;
    } else {
      absl::StrAppend(&line, "\"", absl::CHexEscape(value), "\"");
    }
  }
  return line;
}

std::string JsonLine(const std::string& time, LogLevel level, const char* event,
                     std::span<const LogField> fields) {
  const auto quoted = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true,
                                     nlohmann::json::error_handler_t::replace);
  };
  std::string line =
      absl::StrCat("{\"time\":\"", time, "\",\"level\":\"", LevelName(level),
                   "\",\"event\":\"", event, "\"");
  for (const LogField& field : fields) {
    absl::StrAppend(&line, ",\"", field.key, "\":",
                    field.is_number ? field.value : quoted(Cut(field.value)));
  }
  line += '}';
  return line;
}

}  // namespace

std::string FormatLogLine(LogFormat format,
                          std::chrono::system_clock::time_point time,
                          LogLevel level, const char* event,
                          std::span<const LogField> fields) {
  const std::string text = TimeText(time);
  std::string line = format == LogFormat::kJson
                         ? JsonLine(text, level, event, fields)
                         : TextLine(text, level, event, fields);
  line += '\n';
  return line;
}

void Logger::Log(LogLevel level, const char* event,
                 std::span<const LogField> fields) const {
  if (!Writes(level)) return;
  const std::string line =
      FormatLogLine(format_, clock_->Now(), level, event, fields);
  // One write a line keeps lines whole. There is nowhere to report a failure.
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace skrull
