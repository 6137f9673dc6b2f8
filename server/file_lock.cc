#include "skrull/server/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/status/status.h"

namespace skrull {

FileLock::FileLock(FileLock&& other) noexcept
    : file_(std::exchange(other.file_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

FileLock::~FileLock() {
  // The file is not removed: somebody may be about to lock it.
  if (file_ >= 0) close(file_);
}

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path) {
  FileLock lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.file_ >= 0 && flock(lock.file_, LOCK_EX | LOCK_NB) == 0) return lock;
  const int reason = errno;
  if (lock.file_ >= 0 && reason == EWOULDBLOCK) {
    return absl::FailedPreconditionError(path + ": locked by another process");
  }
  return absl::UnknownError(path + ": " +
                            std::generic_category().message(reason));
}

}  // namespace skrull
