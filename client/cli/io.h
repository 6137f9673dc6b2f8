// Files, streams and numbers for people.
#ifndef SKRULL_CLIENT_CLI_IO_H_
#define SKRULL_CLIENT_CLI_IO_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skrull::cli {

// Exit codes of every command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitRefused = 1;  // some batch refused, some plan illegal
inline constexpr int kExitUsage = 2;    // usage, or an input that is unreadable

// The whole of a file; `-` is the standard input. Errors: NOT_FOUND or
// UNKNOWN naming the file and the system's reason.
absl::StatusOr<std::string> ReadInput(const std::string& path);

// What messages call an input: its path, or "standard input".
std::string InputName(const std::string& path);

// Writes `text` to the standard output. False if it cannot be written.
bool WriteOutput(const std::string& text);

// Where a command writes its result, piece by piece: a file, or the standard
// output.
class Output {
 public:
  // Empty or `-` is the standard output; else the file is made anew. Errors:
  // UNKNOWN naming the file and the system's reason.
  static absl::StatusOr<Output> Open(const std::string& path);

  // Errors: UNKNOWN naming the output and the system's reason.
  absl::Status Write(const std::string& text);

  // Call once, last: what was written before is in the file when this is OK.
  // Errors: as Write.
  absl::Status Close();

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

  Output(std::FILE* file, File owned, const std::string& name)
      : file_(file), owned_(std::move(owned)), name_(name) {}

  absl::Status Error() const;

  std::FILE* file_;
  File owned_;  // null for the standard output
  std::string name_;
};

// Prints "skrullctl: <message>" to the standard error output.
void PrintError(const std::string& message);

// 1234567 -> "1,234,567".
std::string WithThousands(int64_t value);

// "12.3 us", "4.56 ms", "7.89 s".
std::string HumanSeconds(double seconds);

enum class ProgressMode {
  kAuto,    // if the standard error output is a terminal
  kAlways,  // whatever it is; from the first step on
  kNever,
};

// A bar, or a counter while the total is not known, on the standard error
// output: one line, rewritten in place a few times a second, erased at the end.
// Nothing is shown for what is done at once.
class Progress {
 public:
  // `unit` is what is counted, e.g. "batches planned".
  Progress(const std::string& unit, ProgressMode mode);
  // kAuto if `wanted`, else kNever.
  Progress(const std::string& unit, bool wanted);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `total` 0 = not known.
  void Show(int64_t done, int64_t total = 0);
  // Takes the line away, until the next Show.
  void Erase();

 private:
  const std::string unit_;
  const bool enabled_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_;
};

// True if the standard output is a terminal, where output itself is progress.
bool OutputIsTerminal();

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_IO_H_
