// The daemon's log: one event a line on stderr, for people and for programs.
//
//   2026-03-01T09:15:02.123456Z info plan_refused job=run7 step=12 reason="..."
//   {"time":"2026-03-01T09:15:02.123456Z","level":"info","event":...}
//
// Thread-safe; a line is written whole. Whatever a client sends stays inside
// its field: as text, values that hold anything but plain characters are quoted
// and escaped; as JSON, strings are escaped to ASCII, and what is not UTF-8
// becomes U+FFFD. Long values are cut.
#ifndef SKRULL_SERVER_LOG_H_
#define SKRULL_SERVER_LOG_H_

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "skrull/server/clock.h"
#include "skrull/server/options.h"

namespace skrull {

struct LogField {
  LogField(const char* name, const std::string& text)
      : key(name), value(text) {}
  LogField(const char* name, const char* text) : key(name), value(text) {}
  LogField(const char* name, std::integral auto number)
      : key(name), value(std::to_string(number)), is_number(true) {}
  // To a millionth; finite.
  LogField(const char* name, double number)
      : key(name), value(std::to_string(number)), is_number(true) {}

  const char* key;  // [a-z_]+
  std::string value;
  bool is_number = false;
};

// Immutable: safe to share between threads.
class Logger {
 public:
  // Drops what is less severe than `level`. `clock` must outlive the logger.
  Logger(LogLevel level, const Clock* clock,
         LogFormat format = LogFormat::kText)
      : level_(level), clock_(clock), format_(format) {}

  // False if lines of that level are dropped.
  bool Writes(LogLevel level) const { return level <= level_; }

  // `event` is a constant, [a-z_]+.
  void Log(LogLevel level, const char* event,
           std::span<const LogField> fields = {}) const;

  void Error(const char* event,
             std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kError, event, {fields.begin(), fields.size()});
  }
  void Info(const char* event,
            std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kInfo, event, {fields.begin(), fields.size()});
  }
  void Debug(const char* event,
             std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kDebug, event, {fields.begin(), fields.size()});
  }

 private:
  const LogLevel level_;
  const Clock* const clock_;
  const LogFormat format_;
};

// The line, with its newline, that Log writes.
std::string FormatLogLine(LogFormat format,
                          std::chrono::system_clock::time_point time,
                          LogLevel level, const char* event,
                          std::span<const LogField> fields);

}  // namespace skrull

#endif  // SKRULL_SERVER_LOG_H_
