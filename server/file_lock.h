// A lock between processes: whoever holds the file's lock is the only one.
#ifndef SKRULL_SERVER_FILE_LOCK_H_
#define SKRULL_SERVER_FILE_LOCK_H_

#include <string>

#include "absl/status/statusor.h"

namespace skrull {

// Holds the lock until it is destroyed, or the process ends, however it ends.
// Movable, not copyable. A moved-from or default-made one holds nothing.
class FileLock {
 public:
  FileLock() = default;
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

  // Takes the lock of the file at `path`, which is made when missing and stays.
  // Does not wait. Errors: FAILED_PRECONDITION when another process, or another
  // FileLock of this one, holds it; UNKNOWN with the system's reason when the
  // file cannot be opened or locked.
  static absl::StatusOr<FileLock> Acquire(const std::string& path);

 private:
  explicit FileLock(int file) : file_(file) {}

  int file_ = -1;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_FILE_LOCK_H_
