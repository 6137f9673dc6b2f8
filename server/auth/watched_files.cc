#include "skrull/server/auth/watched_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"

namespace skrull {
namespace {

absl::Status ReadError(const std::string& path) {
  return FieldError(path,
                    absl::StrCat("cannot be read: ", std::strerror(errno)));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  // Not to hang where someone put a pipe.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return ReadError(path);
  std::string text;
  char part[16384];
  ssize_t count = 0;
  while ((count = ::read(file, part, sizeof(part))) > 0) {
    text.append(part, static_cast<size_t>(count));
    if (static_cast<int64_t>(text.size()) > WatchedFiles::kMaxFileBytes) break;
  }
  const absl::Status failed = count < 0 ? ReadError(path) : absl::OkStatus();
  ::close(file);
  if (!failed.ok()) return failed;
  if (count > 0) {
    return FieldError(
        path,
        absl::StrCat("has more than ", WatchedFiles::kMaxFileBytes, " bytes"));
  }
  return text;
}

}  // namespace

WatchedFiles::WatchedFiles(std::vector<std::string> paths, Use use)
    : paths_(std::move(paths)), use_(std::move(use)) {}

absl::Status WatchedFiles::Load() {
  loaded_ = LookAtAll();
  seen_ = loaded_;
  const absl::StatusOr<std::vector<std::string>> contents = ReadAll();
  return contents.ok() ? use_(*contents) : contents.status();
}

std::optional<absl::Status> WatchedFiles::Poll() {
  const std::vector<Look> now = LookAtAll();
  const bool stood_still = now == seen_;
  seen_ = now;
  if (now == loaded_ || !stood_still) return std::nullopt;
  const absl::StatusOr<std::vector<std::string>> contents = ReadAll();
  seen_ = LookAtAll();
  if (seen_ != now) return std::nullopt;  // changed while they were read
  loaded_ = now;
  return contents.ok() ? use_(*contents) : contents.status();
}

absl::StatusOr<std::vector<std::string>> WatchedFiles::ReadAll() const {
  std::vector<std::string> contents;
  for (const std::string& path : paths_) {
    absl::StatusOr<std::string> content = ReadFile(path);
    if (!content.ok()) return content.status();
    contents.push_back(*std::move(content));
  }
  return contents;
}

std::vector<WatchedFiles::Look> WatchedFiles::LookAtAll() const {
  std::vector<Look> looks;
  for (const std::string& path : paths_) {
    struct stat file = {};
    Look look;
    if (::stat(path.c_str(), &file) != 0) {
      look.error = errno;
    } else {
      look.device = file.st_dev;
      look.inode = file.st_ino;
      look.size = file.st_size;
      look.changed_nanos =
          int64_t{file.st_ctim.tv_sec} * 1'000'000'000 + file.st_ctim.tv_nsec;
    }
    looks.push_back(look);
  }
  return looks;
}

}  // namespace skrull
