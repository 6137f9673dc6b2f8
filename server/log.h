// The daemon's log: one event a line on stderr, for people and for grep.
//
//   2026-03-01T09:15:02.123456Z info plan_refused job=run7 step=12 reason="..."
//
// Thread-safe; a line is written whole. Values that hold anything but plain
// characters are quoted and escaped, so that nothing a client sends can forge a
// line or a field.
#ifndef SKRULL_SERVER_LOG_H_
#define SKRULL_SERVER_LOG_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "skrull/server/clock.h"
#include "skrull/server/options.h"

namespace skrull {

struct LogField {
  LogField(const char* name, const std::string& text)
      : key(name), value(text) {}
  LogField(const char* name, int64_t number)
      : key(name), value(std::to_string(number)) {}

  const char* key;  // [a-z_]+
  std::string value;
};

// Immutable: safe to share between threads.
class Logger {
 public:
  // Drops what is less severe than `level`. `clock` must outlive the logger.
  Logger(LogLevel level, const Clock* clock) : level_(level), clock_(clock) {}

  // `event` is a constant, [a-z_]+.
  void Log(LogLevel level, const char* event,
           std::initializer_list<LogField> fields = {}) const;

  void Error(const char* event,
             std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kError, event, fields);
  }
  void Info(const char* event,
            std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kInfo, event, fields);
  }
  void Debug(const char* event,
             std::initializer_list<LogField> fields = {}) const {
    Log(LogLevel::kDebug, event, fields);
  }

 private:
  const LogLevel level_;
  const Clock* const clock_;
};

// The line, with its newline, that Log writes.
std::string FormatLogLine(std::chrono::system_clock::time_point time,
                          LogLevel level, const char* event,
                          std::initializer_list<LogField> fields);

}  // namespace skrull

#endif  // SKRULL_SERVER_LOG_H_
