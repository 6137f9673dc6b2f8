#include "skrull/cli/io.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skrull::cli {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

absl::StatusOr<std::string> ReadAll(std::FILE* file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  errno = 0;
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, file)) {
    text.append(buffer, count);
  }
  if (std::ferror(file) != 0) {
    return absl::UnknownError(absl::StrCat(name, ": ", std::strerror(errno)));
  }
  return text;
}

// "[#####---------------]".
std::string Bar(int64_t done, int64_t total) {
  constexpr int64_t kWidth = 20;
  const auto full = static_cast<size_t>(
      std::clamp<int64_t>(done * kWidth / total, 0, kWidth));
  return absl::StrCat("[", std::string(full, '#'),
                      std::string(kWidth - full, '-'), "]");
}

}  // namespace

std::string InputName(const std::string& path) {
  return path == "-" ? "standard input" : path;
}

absl::StatusOr<std::string> ReadInput(const std::string& path) {
  if (path == "-") return ReadAll(stdin, InputName(path));
  const File file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return ReadAll(file.get(), path);
}

bool WriteOutput(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

absl::StatusOr<Output> Output::Open(const std::string& path) {
  if (path.empty() || path == "-") {
    return Output(stdout, File(nullptr, std::fclose), "standard output");
  }
  File file(std::fopen(path.c_str(), "wb"), std::fclose);
  if (file == nullptr) {
    return absl::UnknownError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  std::FILE* const raw = file.get();
  return Output(raw, std::move(file), path);
}

absl::Status Output::Error() const {
  return absl::UnknownError(absl::StrCat(name_, ": ", std::strerror(errno)));
}

absl::Status Output::Write(const std::string& text) {
  const bool ok =
      std::fwrite(text.data(), 1, text.size(), file_) == text.size();
  return ok ? absl::OkStatus() : Error();
}

absl::Status Output::Close() {
  if (std::fflush(file_) != 0) return Error();
  if (owned_ != nullptr && std::fclose(owned_.release()) != 0) return Error();
  return absl::OkStatus();
}

void PrintError(const std::string& message) {
  std::fprintf(stderr, "skrullctl: %s\n", message.c_str());
}

std::string WithThousands(int64_t value) {
  std::string digits = absl::StrCat(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string HumanSeconds(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.1f us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.2f ms", seconds * 1e3);
  return absl::StrFormat("%.3f s", seconds);
}

Progress::Progress(const std::string& unit, ProgressMode mode)
    : unit_(unit),
      enabled_(mode == ProgressMode::kAlways ||
               (mode == ProgressMode::kAuto && ::isatty(STDERR_FILENO) == 1)) {
  next_ = std::chrono::steady_clock::now();
  if (mode == ProgressMode::kAuto) next_ += std::chrono::milliseconds(500);
}

Progress::Progress(const std::string& unit, bool wanted)
    : Progress(unit, wanted ? ProgressMode::kAuto : ProgressMode::kNever) {}

Progress::~Progress() { Erase(); }

void Progress::Show(int64_t done, int64_t total) {
  if (!enabled_ || std::chrono::steady_clock::now() < next_) return;
  next_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  shown_ = true;
  std::string line = WithThousands(done);
  if (total > 0) {
    line =
        absl::StrCat(Bar(done, total), " ", line, " of ", WithThousands(total));
  }
  std::fprintf(stderr, "\r\033[K%s %s", line.c_str(), unit_.c_str());
  std::fflush(stderr);
}

void Progress::Erase() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

bool OutputIsTerminal() { return ::isatty(STDOUT_FILENO) == 1; }

}  // namespace skrull::cli
