#include "skrull/server/log.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

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

}  // namespace

std::string FormatLogLine(std::chrono::system_clock::time_point time,
                          LogLevel level, const char* event,
                          std::initializer_list<LogField> fields) {
  std::string line = absl::FormatTime(
      "%Y-%m-%dT%H:%M:%E6SZ", absl::FromChrono(time), absl::UTCTimeZone());
  absl::StrAppend(&line, " ", LevelName(level), " ", event);
  for (const LogField& field : fields) {
    absl::StrAppend(&line, " ", field.key, "=");
    if (IsPlain(field.value)) {
      line += field.value;
    } else {
      absl::StrAppend(&line, "\"", absl::CHexEscape(field.value), "\"");
    }
  }
  line += '\n';
  return line;
}

void Logger::Log(LogLevel level, const char* event,
                 std::initializer_list<LogField> fields) const {
  if (level > level_) return;
  const std::string line = FormatLogLine(clock_->Now(), level, event, fields);
  // One write a line keeps lines whole. There is nowhere to report a failure.
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace skrull
